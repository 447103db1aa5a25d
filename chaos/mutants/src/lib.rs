//! The agent recomposed with one known bug each: does the suite catch what it exists for?
//!
//! ```text
//! Event ─▶ Brain ─────────────▶ Reconciler ─▶ LbMaps        Datapath (attach, evict)
//!          ├ WideRelease                                    └ StaleKept
//!          ├ LastSliceWins
//!          ├ RefillIgnored
//!          └ EmptyLeftOut
//! ```
//!
//! Each mutant decorates one seam of the agent and passes everything else on: apart from its bug it *is* the
//! production agent, which has no switch for any of this. A mutant is worth something if it behaves as the agent
//! that had the bug, no worse: its tests say where it differs and where it does not.
//!
//! | file | bug |
//! |---|---|
//! | [`wide_release`] | incident 1: a release for `t` takes the backend of `t-ext` too, visible at its next event; and by other keys |
//! | [`stale_kept`] | incident 2: programs of an earlier load stay attached: all, or those in one of the places |
//! | [`last_slice_wins`] | a Service has only the endpoints of the slice that was written last |
//! | [`refill_ignored`] | a slice that was emptied stays empty |
//! | [`empty_left_out`] | a Service without endpoints is not in the maps |

pub mod empty_left_out;
pub mod last_slice_wins;
pub mod refill_ignored;
pub mod stale_kept;
pub mod wide_release;

use clap::ValueEnum;
use serde::Serialize;

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
    /// [`last_slice_wins::LastSliceWins`].
    LastSliceWins,
    /// [`refill_ignored::RefillIgnored`].
    RefillIgnored,
    /// [`empty_left_out::EmptyLeftOut`].
    EmptyLeftOut,
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
    /// [`stale_kept::Overlooked::Sendmsg`].
    StaleSendmsgKept,
    /// `cleanup` does nothing.
    CleanupForgets,
}

impl Mutant {
    /// What is wrong with it, in one sentence.
    pub const fn bug(self) -> &'static str {
        match self {
            Self::PrefixRelease => {
                "an address that leaves a slice of Service S is taken from every Service whose namespace/name \
                 begins with S's, and missing in its maps from its next Service event on"
            }
            Self::JoinedKeyRelease => {
                "the same for every Service whose namespace and name, joined, are the same text as S's"
            }
            Self::NameAloneRelease => "the same for the Services of S's name in other namespaces",
            Self::LastSliceWins => "the slice of a Service that was written last replaces its other slices",
            Self::RefillIgnored => "a slice that was emptied stays empty, whatever is written to it",
            Self::EmptyLeftOut => {
                "a Service without endpoints is not in the maps, so nobody refuses its clients"
            }
            Self::StaleKept => "programs of an earlier load stay attached, and readiness says nothing",
            Self::StaleLegacyKept => "the same of those at the agent's cgroup that no link attaches",
            Self::StaleLinkKept => "the same of those at the agent's cgroup that a link attaches",
            Self::StaleBelowKept => "the same of those at cgroups below the agent's",
            Self::StaleAboveKept => "the same of those at cgroups that the agent's mount does not show",
            Self::StaleSendmsgKept => "the same of those at the sendmsg hooks",
            Self::CleanupForgets => "its clean-up takes nothing away, and says that all went well",
        }
    }

    /// The cases that it must fail: each by itself proves that the suite would have caught the bug.
    pub const fn caught_by(self) -> &'static [&'static str] {
        match self {
            Self::PrefixRelease => &[
                "release-prefix-empty-list",
                "release-prefix-null-slice",
                "release-prefix-one-of-two",
                "release-prefix-object-deleted",
                "release-name-lattice",
                "release-prefix-condition",
            ],
            Self::JoinedKeyRelease => &["release-joined-key-collision"],
            Self::NameAloneRelease => &["release-same-name-two-namespaces"],
            Self::LastSliceWins => &["clusterip-from-pod"],
            Self::RefillIgnored => &["empty-refill-no-restart"],
            Self::EmptyLeftOut => &["clusterip-no-endpoints-refused"],
            Self::StaleKept => &["stale-sock-pins-hidden"],
            Self::StaleLegacyKept => &["stale-sock-legacy-multi"],
            Self::StaleLinkKept => &["stale-sock-link-orphan"],
            Self::StaleBelowKept => &["stale-sock-child-cgroup"],
            Self::StaleAboveKept => &["stale-sock-parent-cgroup"],
            Self::StaleSendmsgKept => &["stale-sock-udp-sendmsg"],
            Self::CleanupForgets => &["uninstall-leaves-nothing"],
        }
    }
}
