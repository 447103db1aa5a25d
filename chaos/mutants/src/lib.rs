//! The agent recomposed with one known bug each, to check that the suite catches it.
//!
//! ```text
//!  watches ─▶ Event ─▶ DesiredState ─▶ Reconciler ─▶ Datapath, LbMaps
//!    │                    │                            └ Flawed, by a Flaw: stale_kept, shut_out, growing, starts_twice,
//!    │                    │                              foreign_removed, pins_left, adopted_kept, flows_kept,
//!    │                    │                              sockets_by_address, refused_as, replies_untranslated,
//!    │                    │                              choices_forgotten, fragments_forgotten, udp_kept, flows_flushed
//!    │                    └ another DesiredState around the agent's: all others
//!    └ another body of the API's answers: cut_unnoticed, slices_late
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
//! | [`cut_unnoticed`] | a watch with a cut connection is treated as a quiet one |
//! | [`endpoints_kept`] | endpoints that have left a slice stay: all, or those that left while others stay |
//! | [`kubernetes_left_out`] | `default/kubernetes` is not in the maps |
//! | [`slices_by_name`] | slices are identified by their names without namespaces |
//! | [`sockets_by_address`] | a UDP socket ends with any Service that its backend leaves |
//! | [`slices_late`] | events of slices are late: after T_ep, or, which is no bug, before |
//! | [`refused_as`] | no bug: connections without a backend are refused with another errno |
//! | [`flows_kept`] | a UDP flow ends only if no Service uses its backend |
//! | [`udp_kept`] | UDP state outlives its backend: all of it, connected sockets, or choices of unconnected ones |
//! | [`flows_flushed`] | all UDP flows end whenever any of them does |
//! | [`replies_untranslated`] | answers to unconnected sockets show the backend |
//! | [`node_ports_taken`] | a node port takes the packets of the node's own sockets |
//! | [`balancers_owned`] | packets from a load balancer's address or an external IP are dropped |
//! | [`host_once`] | the node's addresses are those of the agent's start |
//! | [`choices_forgotten`] | each datagram of an unconnected socket goes to any backend |
//! | [`fragments_forgotten`] | only the first fragment of a datagram is translated |
//!
//! `datapath_decorator` (a datapath with one flaw) and `udp_ending` (which flows it ends) are parts of several;
//! `expected_cases` names the cases that catch each mutant, and those that it passes.

pub mod adopted_kept;
pub mod balancers_owned;
pub mod choices_forgotten;
pub mod cut_unnoticed;
pub mod datapath_decorator;
pub mod empty_left_out;
pub mod endpoints_kept;
mod expected_cases;
pub mod flows_flushed;
pub mod flows_kept;
pub mod foreign_removed;
pub mod fragments_forgotten;
pub mod gateway;
pub mod growing;
pub mod host_once;
pub mod kubernetes_left_out;
pub mod last_slice_wins;
pub mod locked_out;
pub mod node_ports_taken;
pub mod one_way;
pub mod pins_left;
pub mod ranges_unknown;
pub mod refill_doubled;
pub mod refill_ignored;
pub mod refused_as;
pub mod replies_untranslated;
pub mod restored_by_prefix;
pub mod rewritten_ignored;
pub mod shut_out;
pub mod slices_by_name;
pub mod slices_late;
pub mod sockets_by_address;
pub mod stale_kept;
pub mod starts_twice;
pub mod udp_ending;
pub mod udp_kept;
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
    /// [`flows_flushed`].
    FlowsFlushed,
    /// [`replies_untranslated`].
    RepliesUntranslated,
    /// [`node_ports_taken::NodePortsTaken`].
    NodePortsTaken,
    /// [`balancers_owned::BalancersOwned`].
    BalancersOwned,
    /// [`host_once::HostOnce`].
    HostOnce,
    /// [`slices_by_name`].
    SlicesByName,
    /// [`wide_release::WideRelease::by_prefix`] and [`slices_by_name`] at once, as Cilium 1.18.5 has both.
    PrefixReleaseSlicesByName,
    /// [`sockets_by_address`].
    SocketsByAddress,
    /// [`foreign_removed::filters`].
    FiltersRemoved,
    /// [`slices_late`], by 40 s.
    SlicesLate40,
    /// [`slices_late`], by 20 s: no bug.
    SlicesLate20,
    /// [`refused_as::EPERM`]: no bug.
    RefusedEperm,
    /// [`refused_as::EHOSTUNREACH`]: no bug.
    RefusedEhostunreach,
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
            Self::FlowsFlushed => "all flows of datagrams end whenever one of them does",
            Self::FlowsKept => {
                "a UDP flow ends only when no Service uses its backend, whatever becomes of its frontend"
            }
            Self::RepliesUntranslated => {
                "programs that show the dialled frontend to unconnected sockets are not attached"
            }
            Self::NodePortsTaken => {
                "node ports at the node's addresses are translated even if sockets of the node use those ports"
            }
            Self::BalancersOwned => {
                "addresses of load balancers and external IPs are treated as Services' alone, and never as a client's"
            }
            Self::HostOnce => "the node's addresses are those that it had when the agent started",
            Self::SlicesByName => {
                "slices are identified by their names without namespaces: of two with one name, one keeps its endpoints once it is emptied"
            }
            Self::PrefixReleaseSlicesByName => "prefix-release and slices-by-name at once",
            Self::SocketsByAddress => {
                "a UDP socket ends when its backend leaves any Service, whichever it has dialled"
            }
            Self::FiltersRemoved => "filters of other owners at its devices are removed",
            Self::SlicesLate40 => "changes of EndpointSlices are in force 40 s later",
            Self::SlicesLate20 => "none: changes of EndpointSlices are in force 20 s later",
            Self::RefusedEperm => "none: connections to a Service without backends fail with EPERM",
            Self::RefusedEhostunreach => {
                "none: connections to a Service without backends fail with EHOSTUNREACH"
            }
            Self::PinsLeft => "its clean-up detaches everything, and leaves its pins",
            Self::CleanupForgets => "its clean-up removes nothing, and reports success",
        }
    }
}
