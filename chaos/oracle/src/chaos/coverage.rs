//! What histories have covered: which frontends, in which states, were dialled while each fault was there.

use std::collections::BTreeMap;

use super::{ChaosHistory, Disturbance, Frontend};
use crate::history::Attempt;

/// By the names of faults; the empty name has what was dialled without any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(pub BTreeMap<String, Covered>);

/// Attempts that began while a fault was there, at their node or everywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// How often it was there.
    pub made: usize,
    /// Attempts, by the kind of their frontend.
    pub kinds: BTreeMap<String, usize>,
    /// Of clients outside.
    pub outside: usize,
    /// At frontends that nothing serves.
    pub unserved: usize,
    /// At frontends that had changed less than T_ep ago.
    pub changing: usize,
}

impl Coverage {
    /// Adds what a history has covered.
    pub fn add(&mut self, history: &ChaosHistory) {
        for disturbance in &history.disturbances {
            self.0.entry(disturbance.fault.clone()).or_default().made += 1;
        }
        for frontend in &history.frontends {
            for attempt in history.attempts.iter().filter(|one| frontend.takes(one)) {
                let client = history.clients.get(&attempt.client).map_or("", String::as_str);
                let there = history
                    .disturbances
                    .iter()
                    .filter(|one| meets(one, frontend, client, attempt));
                let mut names: Vec<&str> = there.map(|one| &*one.fault).collect();
                names.sort_unstable();
                names.dedup();
                if names.is_empty() {
                    names.push("");
                }
                for name in names {
                    let covered = self.0.entry(name.to_owned()).or_default();
                    *covered.kinds.entry(frontend.kind.clone()).or_default() += 1;
                    covered.outside += usize::from(client.is_empty());
                    covered.unserved += usize::from(is_unserved(frontend, attempt));
                    covered.changing += usize::from(is_changing(history, frontend, attempt));
                }
            }
        }
    }
}

fn meets(disturbance: &Disturbance, frontend: &Frontend, client: &str, attempt: &Attempt) -> bool {
    let is_there = disturbance.from_us <= attempt.start_us && attempt.start_us <= disturbance.until_us;
    let is_at = |node: &String| node == client || frontend.node.as_ref() == Some(node);
    is_there && disturbance.node.as_ref().is_none_or(is_at)
}

fn is_unserved(frontend: &Frontend, attempt: &Attempt) -> bool {
    let before = frontend
        .states
        .iter()
        .rfind(|state| state.done_us <= attempt.start_us);
    before.is_some_and(|state| state.serves.is_empty())
}

fn is_changing(history: &ChaosHistory, frontend: &Frontend, attempt: &Attempt) -> bool {
    frontend.states.iter().skip(1).any(|state| {
        let until = state.done_us.saturating_add(history.tolerance.change_us);
        (state.sent_us..=until).contains(&attempt.start_us)
    })
}
