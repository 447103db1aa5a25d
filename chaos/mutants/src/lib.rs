//! The agent recomposed with one known bug each, to check that the suite catches it.
//!
//! ```text
//!  watches ─▶ Event ─▶ DesiredState ─▶ Reconciler ─▶ Datapath, LbMaps
//!    │                    │                            └ Flawed, by a Flaw: stale_kept, shut_out, growing, starts_twice,
//!    │                    │                              foreign_removed, pins_left, adopted_kept, flows_kept, connections_cut,
//!    │                    │                              sockets_by_address, refused_as, programs_missing,
//!    │                    │                              choices_forgotten, fragments_forgotten, udp_kept, flows_flushed,
//!    │                    │                              numbers_shared, too_big_dropped, rules_flushed
//!    │                    └ another DesiredState around the agent's: all others
//!    └ other answers of the API: cut_unnoticed, slices_late, proxy_name_unread
//! ```
//!
//! Each mutant decorates one interface of the agent and passes everything else on: apart from its bug it *is* the
//! production agent, which has no switch for mutants. A mutant must behave like an agent with that bug, and no worse:
//! its tests check where it differs and where it does not.
//!
//! | file | bug |
//! |---|---|
//! | [`wide_release`] | incident 1: a release for `t` also takes the backend of `t-ext`, visible at its next event; and by other keys |
//! | [`stale_kept`] | incident 2: programs of an earlier load stay attached: all, or those in one place |
//! | [`starts_twice`] | a start that has detached the leftovers of an earlier load ends |
//! | [`growing`] | each start leaves its programs attached beside those of the next |
//! | [`shut_out`] | programs of an earlier load are treated as its own: exclusive ones, or any |
//! | [`adopted_kept`] | what an earlier start has written to pinned maps stays there |
//! | [`foreign_removed`] | programs of other owners are detached too |
//! | [`pins_left`] | the pins survive a clean-up |
//! | [`ranges_unknown`] | no bug of its own: does not refuse addresses without a Service, which would hide another bug |
//! | [`gateway`] | no bug: a proxy answers at addresses without a Service; or, with a bug, also for Services without endpoints |
//! | [`last_slice_wins`] | a Service has only the endpoints of the slice that was written last |
//! | [`refill_doubled`] | a slice that was emptied and filled again has an endpoint twice |
//! | [`rewritten_ignored`] | a Service that has lost a slice ignores slices of other names |
//! | [`restored_by_prefix`] | incident 1 at the start: an empty Service also clears those whose names begin with its own |
//! | [`refill_ignored`] | a slice that was emptied stays empty: any, or that of `default/kubernetes` |
//! | [`empty_left_out`] | a Service without endpoints is not in the maps |
//! | [`locked_out`] | incident 1: the agent reaches the API only by a Service that it programs itself |
//! | [`one_way`] | the agent only uses the kubeconfig's address of the API |
//! | [`cut_unnoticed`] | a watch with a cut connection is treated as a quiet one; or so are all, once the process has stood still |
//! | [`lost_watch`] | once a watch was lost: Services are forgotten, or endpoints that leave a slice stay |
//! | [`endpoints_kept`] | endpoints that have left a slice stay: all, or those that left while others stay |
//! | [`kubernetes_left_out`] | `default/kubernetes` is not in the maps |
//! | [`slices_misread`] | slices mean something else than they say: by namespace, name, port, condition, or what else lists an address |
//! | [`slices_by_name`] | slices are identified by their names without namespaces |
//! | [`sockets_by_address`] | a UDP socket ends with any Service that its backend leaves |
//! | [`proxy_name_unread`] | Services and slices that are labelled for another proxy are served |
//! | [`slices_late`] | events of slices are late: after T_ep, or, which is no bug, before |
//! | [`refused_as`] | no bug: connections without a backend are refused with another errno |
//! | [`conditions_misread`] | conditions of endpoints are misread: unready, draining, terminating, stopped or returning ones |
//! | [`affinity_misread`] | session affinity is ignored, never ends, or keeps endpoints that leave |
//! | [`connections_cut`] | TCP flows end with a backend that serves no new ones |
//! | [`flows_kept`] | a UDP flow ends only if no Service uses its backend |
//! | [`programs_missing`] | some programs are not attached: answers show the backend, or some clients are not served |
//! | [`udp_kept`] | state outlives its backend: all of UDP, connected sockets, choices of unconnected ones, or TCP connections that are being opened |
//! | [`flows_flushed`] | all UDP flows end whenever any of them does |
//! | [`node_ports_taken`] | a node port takes the packets of the node's own sockets |
//! | [`balancers_owned`] | packets from a load balancer's address or an external IP are dropped |
//! | [`host_once`] | the node's addresses are those of the agent's start |
//! | [`missed_changes`] | what a Service no longer has stays: itself, ports, slices, source ranges, addresses |
//! | [`external_frontends`] | external addresses are served only with a backend on the node, or with a node port |
//! | [`addresses_removed`] | with a deleted Service, its external addresses go from others too |
//! | [`terminating_healthy`] | the health check node port counts terminating endpoints |
//! | [`health_outlives`] | another process answers health checks once the agent has ended |
//! | [`changed_anew`] | a Service of several ports that changes is removed, and added again with a later event |
//! | [`policies_misread`] | a traffic policy does not count, or for what it is not about, or hides the client's address |
//! | [`hints_misread`] | hints do not count, or where they are incomplete or of unready endpoints |
//! | [`pods_masqueraded`] | what pods send to backends comes from their node's address |
//! | [`choices_forgotten`] | each datagram of an unconnected socket goes to any backend |
//! | [`fragments_forgotten`] | only the first fragment of a datagram is translated |
//! | [`too_big_dropped`] | ICMP errors about packets that are too big are dropped |
//! | [`replanned`] | wrong plans: ports of backends are frontends, load balancers' closed ports are routed on, closed backends dropped |
//! | [`rules_flushed`] | rules of others are removed with what an earlier version may have left |
//! | [`forgetful_start`] | a start empties the table of services, or that of flows |
//! | [`numbers_shared`] | after a start that adopts maps, new Services get numbers that are in use |
//! | [`oldest_displaced`] | where there are too many endpoints, new Services displace the first |
//! | [`failures_forgotten`] | a write to a map that has failed counts as done |
//! | [`two_writes`] | a service is emptied before its next backends are written |
//! | [`endpoints_left_out`] | some endpoints are in no set: of this node, alone, without a node |
//! | [`ports_confused`] | ports of one number, or families of one port, are not told apart |
//! | [`frontends_added`] | Services serve at the node's addresses, or at those of their backends |
//! | [`unasked`] | node ports have the policy `Local`, or Services affinity, without asking |
//!
//! `datapath_decorator` (a datapath with one flaw) and `udp_ending` (which flows it ends) are parts of several;
//! `expected_cases` names the cases that catch each mutant, and those that it passes.

pub mod addresses_removed;
pub mod adopted_kept;
pub mod affinity_misread;
pub mod balancers_owned;
pub mod changed_anew;
pub mod choices_forgotten;
pub mod conditions_misread;
pub mod connections_cut;
pub mod cut_unnoticed;
pub mod datapath_decorator;
pub mod empty_left_out;
pub mod endpoints_kept;
pub mod endpoints_left_out;
mod expected_cases;
pub mod external_frontends;
pub mod failures_forgotten;
pub mod flows_flushed;
pub mod flows_kept;
pub mod foreign_removed;
pub mod forgetful_start;
pub mod fragments_forgotten;
pub mod frontends_added;
pub mod gateway;
pub mod growing;
pub mod health_outlives;
pub mod hints_misread;
pub mod host_once;
pub mod kubernetes_left_out;
pub mod last_slice_wins;
pub mod locked_out;
pub mod lost_watch;
pub mod missed_changes;
pub mod node_ports_taken;
pub mod numbers_shared;
pub mod oldest_displaced;
pub mod one_way;
pub mod pins_left;
pub mod plans;
pub mod pods_masqueraded;
pub mod policies_misread;
pub mod ports_confused;
pub mod programs_missing;
pub mod proxy_name_unread;
pub mod ranges_unknown;
pub mod refill_doubled;
pub mod refill_ignored;
pub mod refused_as;
pub mod replanned;
pub mod restored_by_prefix;
pub mod rewritten_ignored;
pub mod rules_flushed;
pub mod shut_out;
pub mod slices_by_name;
pub mod slices_late;
pub mod slices_misread;
pub mod sockets_by_address;
pub mod stale_kept;
pub mod starts_twice;
pub mod terminating_healthy;
pub mod too_big_dropped;
pub mod two_writes;
pub mod udp_ending;
pub mod udp_kept;
pub mod unasked;
pub mod wide_release;

use clap::ValueEnum;
use reference_agent::names::ObjectName;
use serde::Serialize;

/// Whether an object is the Service of the API servers.
fn is_kubernetes(name: &ObjectName) -> bool {
    (&*name.namespace, &*name.name) == ("default", "kubernetes")
}

/// A known bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mutant {
    /// [`wide_release::WideRelease::by_prefix`].
    PrefixRelease,
    /// [`wide_release::WideRelease::by_joined_key`].
    JoinedKeyRelease,
    /// [`wide_release::WideRelease::by_name_alone`].
    NameAloneRelease,
    /// [`wide_release::WideRelease::by_address`].
    AddressRelease,
    /// [`wide_release::WideRelease::by_prefix_outside`].
    OutsideRelease,
    /// [`last_slice_wins::LastSliceWins`].
    LastSliceWins,
    /// [`refill_ignored::RefillIgnored`].
    RefillIgnored,
    /// [`refill_doubled::RefillDoubled`].
    RefillDoubled,
    /// [`rewritten_ignored::RewrittenIgnored`].
    RewrittenIgnored,
    /// [`restored_by_prefix::RestoredByPrefix`].
    RestoredByPrefix,
    /// [`refill_ignored::RefillIgnored::of_kubernetes`].
    KubernetesRefillIgnored,
    /// [`kubernetes_left_out::KubernetesLeftOut`].
    KubernetesLeftOut,
    /// [`empty_left_out::EmptyLeftOut`].
    EmptyLeftOut,
    /// [`empty_left_out::EmptyLeftOut`], and a [`gateway`] answers.
    EmptyAnswered,
    /// [`ranges_unknown::RangesUnknown`], and a [`gateway`] answers: no bug.
    DeadAnswered,
    /// [`locked_out::LockedOut`].
    LockedOut,
    /// [`one_way`].
    OneWay,
    /// [`cut_unnoticed`].
    CutUnnoticed,
    /// [`endpoints_kept::KeptEndpoints::Emptied`].
    EmptiedKept,
    /// [`endpoints_kept::KeptEndpoints::Left`].
    LeftKept,
    /// [`stale_kept::Overlooked::All`].
    StaleKept,
    /// [`stale_kept::Overlooked::Legacy`].
    StaleLegacyKept,
    /// [`stale_kept::Overlooked::Links`].
    StaleLinkKept,
    /// [`stale_kept::Overlooked::Below`].
    StaleBelowKept,
    /// [`stale_kept::Overlooked::Above`].
    StaleAboveKept,
    /// [`stale_kept::Overlooked::AboveShown`].
    StaleAboveShownKept,
    /// [`shut_out`], and the agent does not probe itself.
    StaleExclusiveKept,
    /// [`shut_out`] with any attached program.
    StaleTakenForOwn,
    /// [`adopted_kept`].
    AdoptedKept,
    /// [`growing`].
    Growing,
    /// [`starts_twice`].
    StartsTwice,
    /// [`stale_kept::Overlooked::Sendmsg`].
    StaleSendmsgKept,
    /// [`stale_kept::Overlooked::Reverse`].
    StaleReverseKept,
    /// [`stale_kept::Overlooked::Tc`].
    StaleTcKept,
    /// [`stale_kept::Overlooked::Xdp`].
    StaleXdpKept,
    /// [`foreign_removed::greedy`].
    ForeignRemoved,
    /// [`foreign_removed::namesakes`].
    OwnedByName,
    /// [`choices_forgotten`].
    ChoicesForgotten,
    /// [`fragments_forgotten`].
    FragmentsForgotten,
    /// [`flows_kept`].
    FlowsKept,
    /// [`udp_kept::Kept::All`].
    UdpKept,
    /// [`udp_kept::Kept::Sockets`].
    UdpSocketsKept,
    /// [`udp_kept::Kept::Choices`].
    UdpChoicesKept,
    /// [`udp_kept::Kept::Opening`].
    OpeningKept,
    /// [`flows_flushed`].
    FlowsFlushed,
    /// [`programs_missing::Missing::Replies`].
    RepliesUntranslated,
    /// [`conditions_misread::Misread::Unready`].
    UnreadyServed,
    /// [`conditions_misread::Misread::Draining`].
    DrainingPreferred,
    /// [`conditions_misread::Misread::Terminating`].
    TerminatingLeftOut,
    /// [`conditions_misread::Misread::Stopped`].
    StoppedServed,
    /// [`conditions_misread::Misread::Returning`].
    ReturningIgnored,
    /// [`connections_cut`].
    ConnectionsCut,
    /// [`affinity_misread::AffinityMisread::Ignored`].
    AffinityIgnored,
    /// [`affinity_misread::AffinityMisread::Endless`].
    AffinityEndless,
    /// [`affinity_misread::AffinityMisread::Loyal`].
    AffinityLoyal,
    /// [`programs_missing::Missing::Hosts`], and the agent does not probe itself.
    HostsUnserved,
    /// [`programs_missing::Missing::Mapped`], and the agent does not probe itself.
    MappedUnserved,
    /// [`endpoints_left_out::LeftOut::OfThisNode`].
    NodesOwnLeftOut,
    /// [`endpoints_left_out::LeftOut::AloneByUdp`].
    AloneByUdpLeftOut,
    /// [`endpoints_left_out::LeftOut::WithoutNode`].
    NodelessLeftOut,
    /// [`ports_confused::Confused::Protocols`].
    ProtocolsConfused,
    /// [`ports_confused::Confused::Families`].
    FamiliesConfused,
    /// [`ports_confused::Confused::SecondFamily`].
    SecondFamilyLeftOut,
    /// [`frontends_added::Added::Crossed`].
    FrontendsCrossed,
    /// [`frontends_added::Added::AtBackends`].
    BackendsProxied,
    /// [`unasked::Unasked::Local`].
    LocalUnasked,
    /// [`unasked::Unasked::Affinity`].
    AffinityUnasked,
    /// [`node_ports_taken::NodePortsTaken`].
    NodePortsTaken,
    /// [`balancers_owned::BalancersOwned`].
    BalancersOwned,
    /// [`host_once::HostOnce`].
    HostOnce,
    /// [`missed_changes::Missed::Deletion`].
    DeletedServiceKept,
    /// [`missed_changes::Missed::FormerPorts`].
    FormerPortsKept,
    /// [`missed_changes::Missed::OrphanedSlices`].
    OrphanedSlicesKept,
    /// [`missed_changes::Missed::Ranges`].
    RangesKept,
    /// [`missed_changes::Missed::Balancers`].
    BalancersKept,
    /// [`changed_anew::ChangedAnew`].
    ChangedAnew,
    /// [`external_frontends::Depends::LocalBackend`].
    ExternalWithBackend,
    /// [`external_frontends::Depends::NodePort`].
    ExternalWithNodePort,
    /// [`addresses_removed`].
    AddressesRemoved,
    /// [`terminating_healthy`].
    TerminatingHealthy,
    /// [`health_outlives::HealthOutlives`].
    HealthOutlives,
    /// [`pods_masqueraded::PodsMasqueraded`].
    PodsMasqueraded,
    /// [`policies_misread::Misread::InternalIgnored`].
    InternalPolicyIgnored,
    /// [`policies_misread::Misread::ExternalIgnored`].
    ExternalPolicyIgnored,
    /// [`policies_misread::Misread::Coupled`].
    PoliciesCoupled,
    /// [`policies_misread::Misread::Once`].
    PoliciesOnce,
    /// [`policies_misread::Misread::ExternalInside`].
    ExternalPolicyInside,
    /// [`policies_misread::Misread::SourceLost`].
    LocalSourceLost,
    /// [`hints_misread::Misread::Ignored`].
    HintsIgnored,
    /// [`hints_misread::Misread::PartialCounted`].
    PartialHintsCounted,
    /// [`hints_misread::Misread::UnreadyCounted`].
    UnreadyHintsCounted,
    /// [`slices_by_name`].
    SlicesByName,
    /// [`wide_release::WideRelease::by_prefix`] and [`slices_by_name`] at once, as Cilium 1.18.5 has both.
    PrefixReleaseSlicesByName,
    /// [`wide_release::WideRelease::by_prefix`] and [`stale_kept`] at once: the two outages that started the project.
    PrefixReleaseStaleKept,
    /// [`conditions_misread::Misread::Unready`] and [`udp_kept::Kept::All`] at once.
    UnreadyServedUdpKept,
    /// [`slices_misread::Misreading::AnyNamespace`].
    SlicesOfAnyNamespace,
    /// [`slices_misread::Misreading::OwnName`].
    SlicesByOwnName,
    /// [`slices_misread::Misreading::FirstLabel`].
    FirstLabelKept,
    /// [`slices_misread::Misreading::PortNumber`].
    PortsByNumber,
    /// [`slices_misread::Misreading::FirstNumber`].
    FirstNumberForAll,
    /// [`slices_misread::Misreading::NoPorts`].
    NullPortsServed,
    /// [`slices_misread::Misreading::Serving`].
    ServingDecides,
    /// [`slices_misread::Misreading::LastEntry`].
    LastEntryWins,
    /// [`slices_misread::Misreading::LastAddress`].
    LastAddressWins,
    /// [`slices_misread::Misreading::LeftOne`].
    LeftOneLeftAll,
    /// [`sockets_by_address`].
    SocketsByAddress,
    /// [`foreign_removed::filters`].
    FiltersRemoved,
    /// [`proxy_name_unread`].
    ProxyNameUnread,
    /// The pins of each datapath mode are in a folder of their own, and [`stale_kept`].
    ModeForgotten,
    /// [`slices_late`], by 35 s: after T_ep.
    SlicesLate35,
    /// [`slices_late`], by 20 s: no bug.
    SlicesLate20,
    /// [`refused_as::EPERM`]: no bug.
    RefusedEperm,
    /// [`refused_as::EHOSTUNREACH`]: no bug.
    RefusedEhostunreach,
    /// [`replanned::target_ports_served`].
    TargetPortsServed,
    /// [`replanned::balancers_unreserved`].
    BalancersUnreserved,
    /// [`replanned::silent_outside`].
    SilentOutside,
    /// [`replanned::closed_ports_dropped`].
    ClosedPortsDropped,
    /// [`too_big_dropped`].
    TooBigDropped,
    /// [`forgetful_start::services_forgotten`].
    ServicesForgotten,
    /// [`forgetful_start::flows_forgotten`].
    FlowsForgotten,
    /// [`numbers_shared`].
    NumbersShared,
    /// [`failures_forgotten`], and maps are not compared with what was written.
    FailuresForgotten,
    /// [`two_writes`].
    TwoWrites,
    /// [`oldest_displaced::OldestDisplaced`].
    OldestDisplaced,
    /// [`lost_watch::empty_frontends`].
    LostWatchForgets,
    /// [`lost_watch::RemovalsLost`].
    RemovalsLost,
    /// [`cut_unnoticed::mute_after_stop`].
    StopUnnoticed,
    /// [`rules_flushed`].
    RulesFlushed,
    /// Maps are not compared with what was written, and the agent does not probe itself.
    WipeUnnoticed,
    /// `cleanup` does nothing.
    CleanupForgets,
    /// `cleanup` does not find the pins.
    PinsLeft,
}

impl Mutant {
    /// The bug in one sentence.
    pub const fn bug(self) -> &'static str {
        match self {
            Self::PrefixRelease => {
                "an address that leaves a slice of Service S is taken from every Service whose namespace/name \
                 begins with S's, and missing in its maps from its next Service event on"
            }
            Self::JoinedKeyRelease => {
                "an address that leaves a slice of Service S is taken from every Service whose namespace and name, joined, \
                 are the same text as S's"
            }
            Self::NameAloneRelease => {
                "an address that leaves a slice of Service S is taken from the Services of S's name in other namespaces"
            }
            Self::AddressRelease => {
                "an address that leaves a slice is taken from every Service with another port or protocol of it"
            }
            Self::OutsideRelease => {
                "an address that leaves a slice of Service S is missing at node ports and load balancers of every Service \
                 whose namespace/name begins with S's, while the ClusterIP serves"
            }
            Self::LastSliceWins => "the slice of a Service that was written last replaces its other slices",
            Self::RefillIgnored => "a slice that was emptied stays empty, whatever is written to it",
            Self::RefillDoubled => "a slice that was emptied and filled again has its first endpoint twice",
            Self::RewrittenIgnored => "a Service that has lost a slice ignores slices of other names",
            Self::RestoredByPrefix => {
                "at its start, a Service whose slices are empty also clears the backends of all whose namespace/name \
                 begins with its own"
            }
            Self::KubernetesRefillIgnored => {
                "the slice of default/kubernetes, once emptied, stays empty, whatever is written to it"
            }
            Self::KubernetesLeftOut => "default/kubernetes is not in the maps",
            Self::EmptiedKept => "a slice that is emptied keeps its endpoints",
            Self::LeftKept => "an endpoint that leaves a slice in which others stay is kept",
            Self::EmptyLeftOut => {
                "a Service without endpoints is not in the maps, nor are the Service ranges, so its clients are not refused"
            }
            Self::EmptyAnswered => {
                "a Service without endpoints is not in the maps, and a gateway answers its clients with HTTP 400, as it \
                 does at addresses that no Service has"
            }
            Self::DeadAnswered => {
                "none: addresses in the Service ranges that no Service has are not refused, and a gateway answers there with HTTP 400"
            }
            Self::LockedOut => {
                "while the Service by which the agent reaches the API has no endpoints it is refused like \
                 every client, and it remembers no other address"
            }
            Self::OneWay => {
                "the only address of the API that it dials is the kubeconfig's: it does not get further ones, and \
                 remembers none"
            }
            Self::CutUnnoticed => {
                "once a watch's connection was cut, it waits for ever for further watch events"
            }
            Self::StaleKept => {
                "programs of an earlier load stay attached, and readiness does not report them"
            }
            Self::StaleLegacyKept => {
                "programs of an earlier load at the agent's cgroup without a link stay attached"
            }
            Self::StaleLinkKept => {
                "programs of an earlier load at the agent's cgroup with a link stay attached"
            }
            Self::StaleBelowKept => "programs of an earlier load at cgroups below the agent's stay attached",
            Self::StaleAboveKept => {
                "programs of an earlier load at cgroups that the agent's mount does not show stay attached, and addresses in the Service ranges that no Service has are not refused"
            }
            Self::StaleAboveShownKept => {
                "programs of an earlier load at cgroups above the agent's that a mount shows stay attached, and addresses in the Service ranges that no Service has are not refused"
            }
            Self::StaleExclusiveKept => {
                "where a program of an earlier load is exclusive, it treats that as its own, and does not probe itself"
            }
            Self::StaleTakenForOwn => {
                "where programs of an earlier load are attached, it treats them as its own, and does not probe itself"
            }
            Self::AdoptedKept => "what an earlier start has written to the pinned maps is never removed",
            Self::StartsTwice => {
                "a start that has detached programs of an earlier load ends, and the next one serves"
            }
            Self::Growing => "each start attaches its programs once more, and those of the last start stay",
            Self::StaleSendmsgKept => "programs of an earlier load stay attached at the sendmsg hooks",
            Self::StaleReverseKept => {
                "programs of an earlier load stay attached at the hooks that show addresses to clients (recvmsg, getpeername) \
                 and that reserve ports (bind)"
            }
            Self::StaleTcKept => {
                "programs of an earlier load stay attached at network devices, by TCX or as filters"
            }
            Self::StaleXdpKept => "programs of an earlier load stay attached to XDP",
            Self::ForeignRemoved => "programs of other owners at its cgroup and at its devices are detached",
            Self::OwnedByName => {
                "programs that use a map with the name of one of its own are treated as its own, and detached"
            }
            Self::ChoicesForgotten => {
                "which backend an unconnected socket has chosen is forgotten, and chosen again for each datagram"
            }
            Self::FragmentsForgotten => {
                "the state of a fragmented datagram is forgotten before its next fragment arrives"
            }
            Self::UdpKept => "flows of datagrams and UDP sockets stay with a backend that has left",
            Self::UdpSocketsKept => "connected UDP sockets stay with a backend that has left",
            Self::UdpChoicesKept => "unconnected UDP sockets stay with a backend that has left",
            Self::OpeningKept => "TCP connections that are being opened go on asking a backend that has left",
            Self::FlowsFlushed => "all flows of datagrams end whenever one of them does",
            Self::FlowsKept => {
                "a UDP flow ends only when no Service uses its backend, whatever becomes of its frontend"
            }
            Self::RepliesUntranslated => {
                "programs that show the dialled frontend to unconnected sockets are not attached"
            }
            Self::UnreadyServed => "endpoints that are not ready are served like ready ones",
            Self::DrainingPreferred => {
                "endpoints that are terminating and still serving are treated as ready ones, whatever others there are"
            }
            Self::TerminatingLeftOut => "terminating endpoints are left out, also where there are no others",
            Self::StoppedServed => {
                "terminating endpoints that do not serve any more are a Service's last resort like those that do"
            }
            Self::ReturningIgnored => {
                "an endpoint that was terminating when the agent started stays so, whatever is written later"
            }
            Self::ConnectionsCut => {
                "TCP connections through node ports end when their backend serves no new ones: unready, or terminating and not serving"
            }
            Self::AffinityIgnored => "session affinity is ignored",
            Self::AffinityEndless => "the timeout of session affinity is always a day",
            Self::AffinityLoyal => {
                "endpoints of a Service with session affinity stay ready when they leave or terminate"
            }
            Self::HostsUnserved => {
                "no programs are attached at sockets that dial and at the node's own devices: pods are served by packets, \
                 processes of the node are not"
            }
            Self::MappedUnserved => {
                "no programs are attached at IPv6 sockets that dial and at devices of pods: IPv4-mapped addresses are not served"
            }
            Self::NodesOwnLeftOut => "endpoints at an address of the node itself are left out there",
            Self::AloneByUdpLeftOut => "the only endpoint of a UDP port is left out on its own node",
            Self::NodelessLeftOut => "endpoints that name no node are left out",
            Self::ProtocolsConfused => {
                "where a TCP port and a UDP port of a Service have one number, UDP has the backends of TCP"
            }
            Self::FamiliesConfused => {
                "a port of a Service of both families serves in neither while it has no endpoints in one of them"
            }
            Self::SecondFamilyLeftOut => "a Service of both families is served in its first alone",
            Self::FrontendsCrossed => {
                "Services' ports are served at the node's addresses, too, and node ports at ClusterIPs"
            }
            Self::BackendsProxied => "Services' ports are served at the addresses of their backends, too",
            Self::LocalUnasked => {
                "node ports have the traffic policy Local, whatever the Service says: a node without a backend refuses"
            }
            Self::AffinityUnasked => {
                "every Service has session affinity: all connections of a client reach one backend"
            }
            Self::NodePortsTaken => {
                "node ports at the node's addresses are translated even if sockets of the node use those ports"
            }
            Self::BalancersOwned => {
                "addresses of load balancers and external IPs are treated as Services' alone, and never as a client's"
            }
            Self::DeletedServiceKept => {
                "a Service that is deleted stays, with the endpoints that its slices list"
            }
            Self::FormerPortsKept => {
                "a Service's port that gets another number or node port also serves at the former one"
            }
            Self::OrphanedSlicesKept => {
                "a slice that is deleted after its Service stays, and counts for the next Service of that name"
            }
            Self::RangesKept => "a Service whose source ranges are all deleted keeps the last ones",
            Self::BalancersKept => {
                "an address that leaves the status of a Service, or gets ipMode Proxy, is captured all the same"
            }
            Self::ExternalWithBackend => {
                "load balancer addresses and external IPs are served only on nodes with a backend"
            }
            Self::ExternalWithNodePort => {
                "load balancer addresses and external IPs are served only where the port has a node port"
            }
            Self::AddressesRemoved => {
                "with a deleted Service, its load balancer addresses and external IPs go from other Services too"
            }
            Self::TerminatingHealthy => "the health check node port counts endpoints that are terminating",
            Self::HealthOutlives => "a helper outlives the agent, and answers health checks with 200",
            Self::ChangedAnew => {
                "a Service of several ports that change is removed, and added again with an event 200 ms later or more"
            }
            Self::HostOnce => "the node's addresses are those that it had when the agent started",
            Self::PodsMasqueraded => "backends see the node's address of what pods send them",
            Self::InternalPolicyIgnored => "internalTrafficPolicy is always Cluster",
            Self::ExternalPolicyIgnored => "externalTrafficPolicy is always Cluster",
            Self::PoliciesCoupled => "a Service with one traffic policy Local has both",
            Self::PoliciesOnce => "traffic policies stay as they were when the Service was created",
            Self::ExternalPolicyInside => "externalTrafficPolicy Local also counts for pods and hosts",
            Self::LocalSourceLost => {
                "under externalTrafficPolicy Local, backends see the node's address instead of the client's"
            }
            Self::HintsIgnored => "endpoints have no hints",
            Self::PartialHintsCounted => {
                "where some endpoints have zone hints, those without serve no client"
            }
            Self::UnreadyHintsCounted => {
                "zone hints of unready endpoints count: a zone that only such a hint names is not served"
            }
            Self::SlicesByName => {
                "slices are identified by their names without namespaces: of two with one name, one keeps its endpoints once it is emptied"
            }
            Self::PrefixReleaseSlicesByName => "prefix-release and slices-by-name at once",
            Self::PrefixReleaseStaleKept => "prefix-release and stale-kept at once",
            Self::UnreadyServedUdpKept => "unready-served and udp-kept at once",
            Self::SlicesOfAnyNamespace => {
                "an EndpointSlice belongs to the Services that its label names in all namespaces"
            }
            Self::SlicesByOwnName => {
                "an EndpointSlice with the name of a Service belongs to it, whatever its label says"
            }
            Self::FirstLabelKept => {
                "an EndpointSlice belongs to the Service that its label has named first, whatever it says later"
            }
            Self::PortsByNumber => {
                "a port of an EndpointSlice belongs to the Service port whose target port has its number, whatever its name"
            }
            Self::FirstNumberForAll => {
                "all endpoints of a Service port are dialled at the port number of its first EndpointSlice"
            }
            Self::NullPortsServed => {
                "the endpoints of an EndpointSlice without ports are served at the Service's target ports"
            }
            Self::ServingDecides => "a ready endpoint is served only if its condition `serving` is true, too",
            Self::LastEntryWins => {
                "of several entries with one address and port, the last one decides whether it is served"
            }
            Self::LastAddressWins => {
                "an address in several EndpointSlices of a Service has only the ports of the last one"
            }
            Self::LeftOneLeftAll => {
                "an address that leaves one EndpointSlice is removed from the others of its Service, too"
            }
            Self::SocketsByAddress => {
                "a UDP socket ends when its backend leaves any Service, whichever it has dialled"
            }
            Self::FiltersRemoved => "filters of other owners at its devices are removed",
            Self::ProxyNameUnread => "Services and EndpointSlices with another proxy's label are served",
            Self::OldestDisplaced => {
                "where Services have more endpoints than a node can hold, new ones displace the first"
            }
            Self::ModeForgotten => {
                "programs of the former datapath mode stay, with its maps, when another begins"
            }
            Self::SlicesLate35 => "changes of EndpointSlices are in force 35 s later",
            Self::SlicesLate20 => "none: changes of EndpointSlices are in force 20 s later",
            Self::RefusedEperm => "none: connections to a Service without backends fail with EPERM",
            Self::RefusedEhostunreach => {
                "none: connections to a Service without backends fail with EHOSTUNREACH"
            }
            Self::TargetPortsServed => "a ClusterIP also serves at the ports of its backends",
            Self::BalancersUnreserved => {
                "packets to a load balancer's address that has no such port are left to the routes of the node"
            }
            Self::SilentOutside => {
                "connections from outside to a Service without endpoints are dropped, and not refused"
            }
            Self::ClosedPortsDropped => {
                "packets to an endpoint whose port is closed are dropped instead of refused"
            }
            Self::TooBigDropped => {
                "ICMP errors that say that a packet is too big are dropped where they come to the node"
            }
            Self::ServicesForgotten => {
                "at its start, no Service has backends until the lists of the API are there"
            }
            Self::RulesFlushed => {
                "whenever it attaches its programs, it flushes nftables, rules of others included"
            }
            Self::WipeUnnoticed => "entries that another program removes from its maps are not written again",
            Self::FlowsForgotten => "at its start, it forgets all flows",
            Self::NumbersShared => {
                "after a start that adopts its maps, a new Service is served by the backends of another"
            }
            Self::FailuresForgotten => "a write to a map that has failed counts as done",
            Self::TwoWrites => "a Service has no endpoints for some milliseconds whenever they change",
            Self::LostWatchForgets => "once a watch was cut, it serves no Service",
            Self::RemovalsLost => "once a watch was cut, an endpoint that leaves a slice stays",
            Self::StopUnnoticed => {
                "once its process has stood still for some seconds, it waits for ever for further watch events"
            }
            Self::PinsLeft => "its clean-up detaches everything, and leaves its pins",
            Self::CleanupForgets => "its clean-up removes nothing, and reports success",
        }
    }
}
