//! Schedules of chaos against the agent's own parts, in simulated time: its watches, model, plans and maps, without a kernel.
//!
//! ```text
//!  schedule ─▶ play ─┬─▶ writes ──▶ lab API server, in memory ─▶ watches ─▶ events ─▶ model ─▶ plans ─▶ maps in memory
//!                    ├─▶ faults ──▶   its answers, its end                                     │            │
//!                    │                the agent's end, its maps, its writes                    └─▶ law ◀────┘
//!                    └─▶ time: tokio's, paused, which goes on when nothing else is to be done
//! ```
//!
//! The schedules and the faults of answers are those that `plumbline chaos` plays in labs ([`scenarios::chaos`]), and the server is the
//! lab's. What needs a kernel is left out: programs, packets, sockets ([`simulated`]). The node is the first of two.
//!
//! - `api`: the server, its objects, and clients of it. `agent`: the agent's parts. `play`: a schedule from its beginning to its end.
//! - `law`: what must hold. After every round: no write was unlawful. When nothing is outstanding: the maps are the plan from scratch of
//!   all that the agent was told. When no fault has been there for a while: they are that of the API's objects, and each frontend serves
//!   what the schedule's own model says.
mod agent;
mod api;
mod law;
mod play;

use reference_agent::{control::DesiredState, plan::Perspective};
use scenarios::{
    chaos::schedule::{Action, FaultKind, Schedule},
    shrink::shrink,
};

pub use play::{Broken, Played, QUIET, SETTLED, play};

/// Makes the plans of an agent.
pub type Desired = Box<dyn DesiredState>;

/// Whether a kind of fault can be simulated: it needs no kernel, no second address of the API, and no objects beside those of
/// the schedule.
#[must_use]
pub fn simulated(kind: FaultKind) -> bool {
    !matches!(
        kind,
        FaultKind::AgentOtherMode
            | FaultKind::ProgramsLeft
            | FaultKind::ProgramsDetached
            | FaultKind::ProgramsForeign
            | FaultKind::ApiElsewhere
            | FaultKind::ChangesStorm
            | FaultKind::ValuesOverwritten
            | FaultKind::MapsFull
            | FaultKind::AddressAdded
            | FaultKind::AgentTwice
            | FaultKind::PacketsLost
            | FaultKind::NodesApart
            | FaultKind::DeviceDown
            | FaultKind::PowerLost
    )
}

/// Plays a schedule in a runtime of its own, whose time is simulated. Plans are made by what `desired` returns, for each start of the
/// agent anew.
///
/// # Errors
/// The simulation itself has failed.
pub fn played(schedule: &Schedule, desired: &dyn Fn(Perspective) -> Desired) -> anyhow::Result<Played> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    runtime.block_on(play(schedule, desired))
}

/// The fewest actions found of a schedule that still break the law, after at most so many tries.
#[must_use]
pub fn shortest(schedule: &Schedule, tries: usize, desired: &dyn Fn(Perspective) -> Desired) -> Schedule {
    let with = |actions: &[Action]| Schedule {
        actions: actions.to_vec(),
        ..schedule.clone()
    };
    let breaks = async |actions: &[Action]| {
        played(&with(actions), desired).is_ok_and(|played| played.broken.is_some())
    };
    let shrinking = shrink(schedule.actions.clone(), &[], tries, <[_]>::to_vec, breaks);
    with(&futures::executor::block_on(shrinking))
}
