//! Attempts, counted: by client, target and transport, for one phase of a case at a time.

use std::collections::BTreeMap;

use oracle::{
    finding,
    history::{Attempt, Outcome, Transport},
};
use serde::{Deserialize, Serialize};

/// What came of the attempts of one client to one target in one phase. Those that were under way when it ended are of the
/// next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    /// The phase; empty before the first.
    pub phase: String,
    /// Who.
    pub client: String,
    /// What it dialled.
    pub target: String,
    /// How.
    pub transport: Transport,
    /// When the first of them began, microseconds since the Unix epoch.
    pub first_us: u64,
    /// When the last of them ended.
    pub last_us: u64,
    /// Outcomes in words, and how many ended so. Of answers that no probe server gave, the first stands for all.
    pub outcomes: BTreeMap<String, u64>,
}

/// Attempts of the phase that is under way: as large as what differs in it, however many there are.
#[derive(Debug, Default)]
pub(super) struct Summary {
    phase: String,
    lanes: BTreeMap<(String, String, Transport), Lane>,
}

#[derive(Debug)]
struct Lane {
    first_us: u64,
    last_us: u64,
    /// The first of each kind, and how many there were: few, and put into words once.
    outcomes: Vec<(Outcome, u64)>,
}

impl Summary {
    pub(super) fn add(&mut self, attempt: &Attempt) {
        let name = (attempt.client.clone(), attempt.target.clone(), attempt.transport);
        let lane = self.lanes.entry(name).or_insert_with(|| Lane {
            first_us: attempt.start_us,
            last_us: attempt.end_us,
            outcomes: Vec::new(),
        });
        lane.first_us = lane.first_us.min(attempt.start_us);
        lane.last_us = lane.last_us.max(attempt.end_us);
        let mut known = lane.outcomes.iter_mut();
        match known.find(|(known, _)| is_same(known, &attempt.outcome)) {
            Some((_, count)) => *count += 1,
            None => lane.outcomes.push((attempt.outcome.clone(), 1)),
        }
    }

    /// All of the phase that is over; the next begins.
    pub(super) fn take(&mut self, next: &str) -> Vec<Attempts> {
        let phase = std::mem::replace(&mut self.phase, next.to_owned());
        let lanes = std::mem::take(&mut self.lanes).into_iter();
        let attempts = |((client, target, transport), lane): (_, Lane)| Attempts {
            phase: phase.clone(),
            client,
            target,
            transport,
            first_us: lane.first_us,
            last_us: lane.last_us,
            outcomes: lane
                .outcomes
                .into_iter()
                .map(|(outcome, count)| (finding::outcome(&outcome), count))
                .collect(),
        };
        lanes.map(attempts).collect()
    }
}

fn is_same(one: &Outcome, other: &Outcome) -> bool {
    match (one, other) {
        (Outcome::Answered { answer, .. }, Outcome::Answered { answer: other, .. }) => {
            answer.identity == other.identity
        }
        (Outcome::Garbled { .. }, Outcome::Garbled { .. }) => true,
        (one, other) => one == other,
    }
}
