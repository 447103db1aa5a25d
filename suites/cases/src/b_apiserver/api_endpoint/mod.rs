//! What the cases about the agent's own API endpoint share.
//!
//! The agent of the first node is redirected: it reaches the API through a frontend of a Service that it serves itself.
//! Then that Service changes, and the agent's connections are reset, so that it must dial again. Only the canary, an
//! ordinary Service whose EndpointSlice switches from one backend to another, shows whether the agent receives updates:
//! its readiness decides nothing.
//!
//! | file | what |
//! |---|---|
//! | `agent_under_test` | the redirected agent, and its connections |
//! | `api_service` | the Service through which it reaches the API, whose EndpointSlice the case writes |
//! | `canary` | the canary |
//! | `dials` | dials of the same frontend by a host process, which must not fail |
mod agent_under_test;
mod api_service;
mod canary;
mod dials;

use harness::{context::Context, verdict::Halt};

pub(super) use self::{
    agent_under_test::{AgentUnderTest, EMPTY, Reset, ends},
    api_service::{ApiService, Frontend},
    canary::Canary,
    dials::all_accepted,
};

/// The node whose agent is under test.
pub(super) fn node(cx: &Context) -> Result<String, Halt> {
    let first = cx.nodes().into_iter().next();
    first.ok_or_else(|| Halt::Harness("no node".to_owned()))
}
