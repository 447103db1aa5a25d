//! Two implementations as each other's oracle: random scenarios, played in two clusters side by side, and compared by what clients
//! and backends saw.
//!
//! ```text
//!  seed ─▶ generate ─▶ steps ─▶ play ─┬─▶ cluster A ─▶ Seen ─┐
//!                        ▲            └─▶ cluster B ─▶ Seen ─┴─▶ compare ─▶ differences ─▶ permitted? ─▶ a finding
//!                        └────────────── shrink ◀──────────────────────────────────────────────────────────┘
//! ```
//!
//! - `step.rs`: steps as data, which a file holds; `words.rs`: as sentences. `world.rs`: which steps make sense, and whose a
//!   destination is. `generate.rs`: random ones. All of it is pure.
//! - `play/`: two clusters, from nothing to the last step of a scenario.
//! - `seen.rs`: what one cluster showed. `compare.rs`: how two differ. `compare/permitted.rs`: the one list of differences that both may have.
//! - `shrink.rs`: fewer steps that still show a difference. `search.rs`: seeds, one after the other; findings, confirmed and shrunk.
pub mod compare;
pub mod generate;
pub mod play;
pub mod search;
pub mod seen;
pub mod shrink;
pub mod step;
mod words;
pub mod world;
