//! Cases that catch mutants, and cases that mutants pass.

use crate::Mutant;

impl Mutant {
    /// The cases that must fail: each alone proves that the suite would have caught the bug.
    pub const fn caught_by(self) -> &'static [&'static str] {
        match self {
            Self::PrefixRelease => &[
                "release-prefix-empty-list",
                "release-prefix-null-slice",
                "release-prefix-one-of-two",
                "release-prefix-object-deleted",
                "release-name-lattice",
                "release-prefix-condition",
                "release-every-trigger",
                "kubesvc-shared-address-restart",
            ],
            Self::JoinedKeyRelease => &["release-joined-key-collision"],
            Self::NameAloneRelease => &["release-same-name-two-namespaces"],
            Self::AddressRelease => &["release-port-scoped"],
            Self::OutsideRelease => &["release-all-frontends", "release-all-frontends-lb"],
            Self::LastSliceWins => &["clusterip-from-pod"],
            Self::RefillIgnored => &["empty-refill-no-restart"],
            Self::RefillDoubled => &["release-culprit-refilled"],
            Self::RewrittenIgnored => &["release-victim-slice-rewritten"],
            Self::RestoredByPrefix => &["release-agent-restart-between"],
            Self::KubernetesRefillIgnored => &["kubesvc-refill-all-nodes"],
            Self::KubernetesLeftOut => &["kubesvc-reachable"],
            Self::EmptiedKept => &["kubesvc-empty-permitted"],
            Self::LeftKept => &["kubesvc-one-of-n-leaves"],
            Self::EmptyLeftOut | Self::EmptyAnswered => &["clusterip-no-endpoints-refused"],
            Self::LockedOut => &[
                "agent-own-vip-clusterip",
                "agent-own-vip-loadbalancer",
                "agent-own-vip-slice-recreated",
                "agent-start-while-vip-empty",
            ],
            Self::OneWay => &["agent-own-vip-clusterip", "agent-start-with-stale-vip"],
            Self::CutUnnoticed => &["all-watches-cut"],
            Self::StaleKept => &[
                "stale-sock-pins-hidden",
                "stale-sock-legacy-multi",
                "stale-sock-link-orphan",
                "stale-sock-child-cgroup",
                "stale-sock-udp-sendmsg",
                "stale-sock-reverse-hooks",
            ],
            Self::StaleLegacyKept => &["stale-sock-legacy-multi"],
            Self::StaleLinkKept => &["stale-sock-link-orphan"],
            Self::StaleBelowKept => &["stale-sock-child-cgroup"],
            Self::StaleAboveKept => &["stale-sock-parent-cgroup"],
            Self::StaleAboveShownKept => &["stale-sock-parent-cgroup"],
            Self::StaleExclusiveKept => &["stale-sock-exclusive-attach", "stale-sock-exclusive-above"],
            Self::StaleTakenForOwn | Self::AdoptedKept => &["stale-map-pin"],
            Self::Growing => &["stale-restart-loop-no-growth"],
            Self::StartsTwice => &["stale-no-reboot"],
            Self::StaleSendmsgKept => &["stale-sock-udp-sendmsg"],
            Self::StaleReverseKept => &["stale-sock-reverse-hooks"],
            Self::StaleTcKept => &["stale-tc", "ready-means-served"],
            Self::StaleXdpKept => &["stale-xdp"],
            Self::ForeignRemoved => &["foreign-programs-kept"],
            Self::OwnedByName => &["stale-map-name-collision"],
            Self::ChoicesForgotten => &["udp-socket-sticks"],
            Self::FragmentsForgotten => &["udp-fragments", "udp-fragments-reordered"],
            Self::FlowsKept => &["frontend-moves-owner", "frontend-moves-owner-lb"],
            Self::RepliesUntranslated => &["reply-from-frontend"],
            Self::UnreadyServed => &["unready-no-new"],
            Self::DrainingPreferred => &["terminating-not-preferred"],
            Self::TerminatingLeftOut => &["terminating-fallback"],
            Self::StoppedServed => &["terminating-unserving-none"],
            Self::ReturningIgnored => &["returning-endpoint-active"],
            Self::ConnectionsCut => &["ready-flap-keeps-established", "terminating-drains-established"],
            Self::AffinityIgnored => &["affinity-sticks"],
            Self::AffinityEndless => &["affinity-expires"],
            Self::AffinityLoyal => &["affinity-backend-gone"],
            Self::NodePortsTaken => &["own-connection-untouched"],
            Self::BalancersOwned => &["lb-address-as-source"],
            Self::HostOnce => &["node-addresses-followed"],
            Self::CleanupForgets | Self::PinsLeft => &["uninstall-leaves-nothing"],
            Self::SlicesByName => &["release-same-name-two-namespaces"],
            Self::PrefixReleaseSlicesByName => &[
                "release-prefix-empty-list",
                "release-prefix-null-slice",
                "release-prefix-one-of-two",
                "release-prefix-condition",
                "release-name-lattice",
                "release-all-frontends",
                "release-culprit-refilled",
                "release-same-name-two-namespaces",
            ],
            Self::SocketsByAddress => &["release-established-flows"],
            Self::FiltersRemoved => &["foreign-programs-kept"],
            Self::SlicesLate40 => &["release-prefix-empty-list", "clusterip-no-endpoints-refused"],
            Self::SlicesLate20 | Self::RefusedEperm | Self::RefusedEhostunreach | Self::DeadAnswered => &[],
        }
    }

    /// Cases that must pass, besides the control: the bug does not concern them, or there is no bug.
    pub const fn passed_by(self) -> &'static [&'static str] {
        match self {
            Self::PrefixReleaseSlicesByName => &[
                "release-joined-key-collision",
                "release-port-scoped",
                "release-victim-slice-rewritten",
            ],
            Self::SlicesByName | Self::SocketsByAddress => {
                &["release-prefix-empty-list", "release-port-scoped"]
            }
            // Silence instead of a refusal, or an answer by another server, fails the row about refusals; these rows
            // only need that no backend answers.
            Self::EmptyLeftOut | Self::EmptyAnswered => {
                &["release-prefix-empty-list", "release-prefix-object-deleted"]
            }
            // The rows about a deleted Service, and the one about existing Services without backends.
            Self::DeadAnswered => &[
                "release-prefix-object-deleted",
                "agent-own-vip-slice-recreated",
                "stale-map-pin",
                "stale-sock-parent-cgroup",
                "clusterip-no-endpoints-refused",
            ],
            Self::SlicesLate20 => &[
                "release-prefix-empty-list",
                "clusterip-no-endpoints-refused",
                "udp-socket-sticks",
            ],
            Self::RefusedEperm | Self::RefusedEhostunreach => {
                &["release-prefix-empty-list", "clusterip-no-endpoints-refused"]
            }
            _ => &[],
        }
    }

    /// The rows among these that are judged over other cases, each with one such case: if that one needed help, the row
    /// fails.
    pub const fn through(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::StartsTwice => &[("stale-no-reboot", "stale-sock-link-orphan")],
            _ => &[],
        }
    }
}
