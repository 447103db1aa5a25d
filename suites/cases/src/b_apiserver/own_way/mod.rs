//! The rows of the agent's own way to the API: what they have in common.
//!
//! The agent of the first node is led to the API by a frontend of a Service that it serves itself. Then something happens
//! to that Service, and its connections are reset, so that it must dial anew. What it sees of the API shows in the canary
//! alone, an ordinary Service whose slice is turned from one backend to another: readiness decides nothing.
//!
//! | file | what |
//! |---|---|
//! | `canary` | the canary |
//! | `dials` | dials of the same frontend by others, which must not fail |
//! | `way` | the Service by which it reaches the API, whose slice the case writes |
//! | `led` | the agent that is led there, and its connections |
mod canary;
mod dials;
mod led;
mod way;

use harness::{context::Context, verdict::Halt};

pub(super) use self::{
    canary::Canary,
    dials::all_taken,
    led::{EMPTY, Led, Reset, ends},
    way::{Frontend, Way},
};

/// The node whose agent is under test.
pub(super) fn node(cx: &Context) -> Result<String, Halt> {
    let first = cx.nodes().into_iter().next();
    first.ok_or_else(|| Halt::Harness("no node".to_owned()))
}
