//! The agent recomposed with one known bug each: does the suite catch what it exists for?
//!
//! ```text
//! Event ─▶ Brain ─────────────▶ Reconciler ─▶ LbMaps        Datapath (attach, evict)
//!          ├ PrefixRelease                                  └ StaleKept
//!          └ LastSliceWins
//! ```
//!
//! Each mutant decorates one seam of the agent and passes everything else on: apart from its bug it *is* the
//! production agent, which has no switch for any of this. A mutant is worth something if it behaves as the agent
//! that had the bug, no worse: its tests say where it differs and where it does not.
//!
//! | file | bug |
//! |---|---|
//! | [`prefix_release`] | incident 1: a release for `t` takes the backend of `t-ext` too, visible at its next event |
//! | [`stale_kept`] | incident 2: programs of an earlier load stay attached |
//! | [`last_slice_wins`] | a Service has only the endpoints of the slice that was written last |

pub mod last_slice_wins;
pub mod prefix_release;
pub mod stale_kept;

use clap::ValueEnum;
use serde::Serialize;

/// A known bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mutant {
    /// [`prefix_release::PrefixRelease`].
    PrefixRelease,
    /// [`stale_kept::StaleKept`].
    StaleKept,
    /// [`last_slice_wins::LastSliceWins`].
    LastSliceWins,
}

impl Mutant {
    /// What is wrong with it, in one sentence.
    pub const fn bug(self) -> &'static str {
        match self {
            Self::PrefixRelease => {
                "an address that leaves a slice of Service S is taken from every Service whose namespace/name \
                 begins with S's, and missing in its maps from its next Service event on"
            }
            Self::StaleKept => "programs of an earlier load stay attached, and readiness says nothing",
            Self::LastSliceWins => "the slice of a Service that was written last replaces its other slices",
        }
    }
}
