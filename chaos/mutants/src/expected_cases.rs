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
                "fresh-agent-equal",
            ],
            Self::JoinedKeyRelease => &["release-joined-key-collision"],
            Self::NameAloneRelease => &["release-same-name-two-namespaces"],
            Self::AddressRelease => &["release-port-scoped"],
            Self::OutsideRelease => &["release-all-frontends", "release-all-frontends-lb"],
            Self::LastSliceWins => &["clusterip-from-pod", "slice-union", "churn-converges"],
            Self::RefillIgnored => &["empty-refill-no-restart"],
            Self::RefillDoubled => &["release-culprit-refilled"],
            Self::RewrittenIgnored => &["release-victim-slice-rewritten"],
            Self::RestoredByPrefix => &["release-agent-restart-between", "fresh-agent-equal"],
            Self::KubernetesRefillIgnored => &["kubesvc-refill-all-nodes"],
            Self::KubernetesLeftOut => &["kubesvc-reachable"],
            Self::EmptiedKept => &[
                "kubesvc-empty-permitted",
                "slice-empty-drops-to-zero",
                "external-no-endpoints",
            ],
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
            Self::StaleTakenForOwn => &["stale-map-pin"],
            Self::AdoptedKept => &["stale-map-pin", "restart-prunes-deleted"],
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
            Self::FlowsKept => &[
                "frontend-moves-owner",
                "frontend-moves-owner-lb",
                "udp-zero-and-back",
                "udp-zero-and-back-lb",
                "udp-backend-replaced",
                "udp-deleted-no-misdelivery",
            ],
            Self::UdpKept => &[
                "udp-zero-and-back",
                "udp-backend-replaced",
                "udp-deleted-no-misdelivery",
                "udp-connected-socket-released",
            ],
            Self::UdpSocketsKept => &["udp-connected-socket-released"],
            Self::OpeningKept => &["pod-ip-reuse"],
            Self::UdpChoicesKept => &["udp-zero-and-back", "udp-backend-replaced"],
            Self::FlowsFlushed => &["udp-healthy-flow-kept"],
            Self::RepliesUntranslated => &["reply-from-frontend"],
            Self::UnreadyServed => &["unready-no-new", "clusterip-from-pod"],
            Self::DrainingPreferred => &["terminating-not-preferred"],
            Self::TerminatingLeftOut => &["terminating-fallback", "rollout-no-loss"],
            Self::StoppedServed => &["terminating-unserving-none"],
            Self::ReturningIgnored => &["returning-endpoint-active"],
            Self::ConnectionsCut => &["ready-flap-keeps-established", "terminating-drains-established"],
            Self::AffinityIgnored => &["affinity-sticks"],
            Self::AffinityEndless => &["affinity-expires"],
            Self::AffinityLoyal => &["affinity-backend-gone"],
            Self::HostsUnserved => &["clusterip-from-host"],
            Self::MappedUnserved => &["v4-mapped-socket"],
            Self::NodesOwnLeftOut => &["clusterip-hostnetwork-backend"],
            Self::AloneByUdpLeftOut => &["clusterip-hairpin"],
            Self::NodelessLeftOut => &["service-without-selector"],
            Self::ProtocolsConfused => &["same-port-tcp-udp", "same-port-tcp-udp-lb"],
            Self::FamiliesConfused => &["dual-stack-families-apart"],
            Self::SecondFamilyLeftOut => &["dual-stack-both"],
            Self::FrontendsCrossed => &["frontends-not-crossed"],
            Self::BackendsProxied => &["headless-not-proxied"],
            Self::LocalUnasked => &["nodeport-any-node"],
            Self::AffinityUnasked => &["spread-all-endpoints", "clusterip-from-pod"],
            Self::NodePortsTaken => &["own-connection-untouched"],
            Self::BalancersOwned => &["lb-address-as-source"],
            Self::DeletedServiceKept => &[
                "service-deleted-vip-dead",
                "service-deleted-vip-dead-lb",
                "clusterip-reused",
                "baseline-after-churn",
            ],
            Self::FormerPortsKept => &["service-change-live", "service-change-live-lb"],
            Self::OrphanedSlicesKept => &["clusterip-reused"],
            Self::RangesKept => &["lb-source-ranges"],
            Self::BalancersKept => &["service-change-live-lb", "lb-status-followed"],
            Self::ExternalWithBackend => &["lb-vip-served", "external-ip-served"],
            Self::ExternalWithNodePort => &["lb-without-nodeports", "external-ip-served"],
            Self::AddressesRemoved => &["shared-frontend-ip", "shared-frontend-ip-external"],
            Self::TerminatingHealthy => &["hcnp-truth"],
            Self::HealthOutlives => &["hcnp-agent-dead"],
            Self::ChangedAnew => &["service-change-live", "service-change-live-lb"],
            Self::HostOnce => &["node-addresses-followed"],
            Self::TargetPortsServed => &["clusterip-closed-port"],
            Self::BalancersUnreserved => &["lb-closed-port-no-loop"],
            Self::SilentOutside => &["external-no-endpoints-rejected"],
            Self::TooBigDropped => &[
                "pmtu-toward-backend",
                "pmtu-toward-client",
                "pmtu-toward-client-lb",
            ],
            Self::ClosedPortsDropped => &["backend-port-closed-visible", "backend-port-closed-visible-udp"],
            Self::ServicesForgotten => &["restart-no-new-failure", "upgrade-and-back"],
            Self::FlowsForgotten => &["restart-established-kept", "upgrade-and-back"],
            Self::NumbersShared => &["bootstrap-services-apart"],
            Self::RulesFlushed => &["foreign-rules-kept"],
            Self::WipeUnnoticed => &["state-wiped-recovers"],
            Self::TwoWrites => &["atomic-endpoint-switch"],
            Self::LostWatchForgets => &["api-outage-static"],
            Self::RemovalsLost => &["relist-prunes-removals"],
            Self::StopUnnoticed => &["watch-stalled"],
            Self::PodsMasqueraded => &["source-ip-clusterip"],
            Self::InternalPolicyIgnored => &["itp-local"],
            Self::ExternalPolicyIgnored => &[
                "etp-local-source-kept",
                "etp-local-source-kept-lb",
                "etp-local-no-endpoint-none",
                "etp-local-no-endpoint-none-lb",
                "etp-local-incluster-nodeport",
            ],
            Self::PoliciesCoupled => &["itp-local-leaves-external", "itp-local-leaves-external-lb"],
            Self::PoliciesOnce => &["policy-flip-live"],
            Self::ExternalPolicyInside => &["etp-local-incluster"],
            Self::LocalSourceLost => &["etp-local-source-kept", "etp-local-source-kept-lb"],
            Self::HintsIgnored => &["hints-zone", "hints-same-node"],
            Self::PartialHintsCounted => &["hints-partial-ignored"],
            Self::UnreadyHintsCounted => &["hints-unready-ignored"],
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
            Self::PrefixReleaseStaleKept => &["release-prefix-empty-list", "stale-sock-link-orphan"],
            Self::UnreadyServedUdpKept => &["unready-no-new", "clusterip-from-pod", "udp-backend-replaced"],
            Self::SlicesOfAnyNamespace => &["slice-namespace-bound"],
            Self::SlicesByOwnName => &["slice-labels-and-names"],
            Self::FirstLabelKept => &["slice-relabelled"],
            Self::PortsByNumber => &["slice-port-name-match"],
            Self::FirstNumberForAll => &["slice-port-per-pod"],
            Self::NullPortsServed => &["slice-odd-contents-ignored"],
            Self::ServingDecides => &["slice-ready-is-what-counts"],
            Self::LastEntryWins => &["slice-ghost-terminating"],
            Self::LastAddressWins => &["slice-same-address-other-port"],
            Self::LeftOneLeftAll => &["slice-duplicate-and-move"],
            Self::SocketsByAddress => &[
                "release-established-flows",
                "udp-closed-socket-spares-others",
                "udp-reconnected-not-killed",
            ],
            Self::FiltersRemoved => &["foreign-programs-kept"],
            Self::ProxyNameUnread => &["service-proxy-name-ignored"],
            Self::OldestDisplaced => &["overflow-old-survive"],
            Self::FailuresForgotten => &["write-failure-retried"],
            Self::ModeForgotten => &["mode-switch-clean"],
            Self::SlicesLate35 => &[
                "release-prefix-empty-list",
                "clusterip-no-endpoints-refused",
                "udp-not-ready-yet",
                "scale-canary-latency",
            ],
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
            // In place of a control.
            Self::KubernetesLeftOut => &["clusterip-from-pod"],
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

    /// Whether a control must pass on it. False: its fences are late, too, which a control notices or not; another mutant,
    /// which is less late and passes all it is tried with, shows that nothing else is wrong.
    pub const fn has_control(self) -> bool {
        !matches!(self, Self::SlicesLate35)
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
