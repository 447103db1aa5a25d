//! Scenarios whose writes and faults are those of chaos.

use std::collections::{BTreeSet, VecDeque};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use super::{CLIENTS, client, valid};
use crate::{
    chaos::{
        generate::{Wish, schedule},
        schedule::{Action, Does, LONGEST_MS, Schedule},
        world::World,
    },
    churn::{FAULTS, NODES, writes},
    step::{Scenario, Step},
};

/// Schedules are played so much faster than they were made for: their clients are to see what faults break before the heal, and those here
/// dial when all is healed.
const FASTER: u32 = 4;
/// One of so many steps is a part of the schedule.
const PARTS: u32 = 3;
/// The length of a schedule for so many steps: there are parts for all, except for hundreds of steps with faults, which have many writes
/// each.
const STEP_MS: u32 = 1500;
const SHORTEST_MS: u32 = 60_000;

/// What a scenario has of chaos.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Churn {
    /// Whether there are faults of the API and of agents: [`FAULTS`].
    pub faults: bool,
    /// Whether slices move from one Service to another.
    pub moves: bool,
}

/// The scenario of a seed with the writes of the same seed's schedule, from the first state on. Clients go on alone where that ends.
#[must_use]
pub fn with_chaos(seed: u64, steps: usize, churn: Churn) -> Scenario {
    let mut random = StdRng::seed_from_u64(seed);
    let kinds = if churn.faults {
        BTreeSet::from(FAULTS)
    } else {
        BTreeSet::new()
    };
    let lasts_ms = u32::try_from(steps).unwrap_or(u32::MAX).saturating_mul(STEP_MS);
    let wish = Wish {
        lasts_ms: lasts_ms.clamp(SHORTEST_MS, LONGEST_MS),
        kinds,
        nodes: NODES,
        moves: churn.moves,
    };
    let mut parts = VecDeque::from(parts(schedule(seed, &wish)));
    parts.push_front(writes(&World::first()));
    valid(seed, steps, |state| {
        if state.world == World::default() || random.random_ratio(1, PARTS) {
            // Without a part left, clients go on: an empty one is invalid.
            return Step::Chaos(parts.pop_front().unwrap_or_default());
        }
        let number = random.random_range(CLIENTS);
        client(&mut random, state, number)
    })
}

/// The parts of a schedule that nothing comes between: a write, a burst of them, or faults with the writes that come while they last. Times
/// count from the beginning of each.
fn parts(schedule: Schedule) -> Vec<Vec<Action>> {
    let mut all: Vec<Vec<Action>> = Vec::new();
    let (mut began, mut ends) = (0, 0);
    for mut action in schedule.actions {
        if let Does::Fault(fault) = &mut action.does {
            fault.lasts_ms /= FASTER;
        }
        action.at_ms /= FASTER;
        let (at, until) = (action.at_ms, action.ends_ms());
        match all.last_mut().filter(|_| at <= ends) {
            Some(part) => {
                action.at_ms -= began;
                part.push(action);
            }
            None => {
                (began, ends) = (at, until);
                action.at_ms = 0;
                all.push(vec![action]);
            }
        }
        ends = ends.max(until);
    }
    all
}
