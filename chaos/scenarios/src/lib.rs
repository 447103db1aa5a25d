//! Two implementations, each the other's oracle: random scenarios are played in two clusters side by side, and compared
//! by what clients and backends saw.
//!
//! ```text
//!  seed ─▶ generate ─▶ steps ─▶ play ─┬─▶ cluster A ─▶ Observation ─┐
//!                        ▲            └─▶ cluster B ─▶ Observation ─┴─▶ compare ─▶ differences ─▶ permitted? ─▶ finding
//!                        └────────────── shrink ◀──────────────────────────────────────────────────────────┘
//! ```
//!
//! - `step.rs`: steps as data, in files; `text.rs`: steps as text. `state.rs`: which steps are valid, and which
//!   Service owns a destination. `generate.rs`: random steps. All of these are pure.
//! - `churn.rs`: what `chaos/` writes, as comparisons see it.
//! - `play/`: two clusters, from their start to the last step of a scenario.
//! - `observation.rs`: what one cluster showed. `compare.rs`: how two differ. `compare/permitted.rs`: the list of differences
//!   that both may have.
//! - `chaos/`: seeded writes and faults under load, in one cluster, judged from one history.
//! - `shrink.rs`: fewer steps that still show a difference. `search.rs`: one seed after the other; findings, confirmed
//!   and shrunk.
pub mod chaos;
pub mod churn;
pub mod compare;
pub mod generate;
pub mod observation;
pub mod play;
pub mod search;
pub mod shrink;
pub mod state;
pub mod step;
mod text;
