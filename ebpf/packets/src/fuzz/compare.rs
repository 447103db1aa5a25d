//! What differs between what is permitted and what was done.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Debug},
};

use lb_abi::{Flow, Traffic, flow_flags};

use super::{
    kernel::{Observation, Shot},
    run::Model,
};
use crate::model::{NodeSockets, Observed, Outcome, Rejects, Routes, State, Translated};

/// Slots, and a hole, that are tried for packets that leave no trace of what was chosen.
const PICKS: usize = 5;

/// One thing that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// What.
    pub what: &'static str,
    /// As it should be.
    pub expected: String,
    /// As it is.
    pub found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            expected,
            found,
        } = self;
        write!(f, "{what}\n    expected {expected}\n    found    {found}")
    }
}

/// What the maps do not say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings<'a> {
    pub(super) model: Model,
    pub(super) routes: &'a Routes,
    pub(super) sockets: &'a NodeSockets,
}

/// What should have been done, as near to what was done as is permitted, and what differs from it.
pub(super) fn judge(
    around: Surroundings<'_>,
    before: &State,
    shot: &Shot,
    observation: &Observation,
    rejects: impl Fn(u32) -> Rejects,
) -> (Outcome, Vec<Difference>) {
    let (early, late) = observation.clock;
    let times: BTreeSet<u32> = [early, late].into();
    let mut least: Option<(Outcome, Vec<Difference>)> = None;
    for now in times {
        for pick in 0..PICKS {
            let input = shot.input(now, rejects(now), (around.routes, around.sockets));
            let observed = Observed {
                counter: observation.counter,
                frame: &observation.frame,
                flows: &observation.state.flows,
                pick,
            };
            let outcome = (around.model)(before, &input, &observed);
            let differences = compare(&outcome, observation);
            if differences.is_empty() {
                return (outcome, differences);
            }
            if least
                .as_ref()
                .is_none_or(|(_, least)| differences.len() < least.len())
            {
                least = Some((outcome, differences));
            }
        }
    }
    least.expect("there is a time and a pick")
}

fn compare(outcome: &Outcome, observation: &Observation) -> Vec<Difference> {
    let mut found = Vec::new();
    same(&mut found, "verdict", &outcome.verdict, &observation.verdict);
    same(&mut found, "counter", &outcome.counter, &observation.counter);
    if outcome.frame != observation.frame {
        found.push(Difference {
            what: "packet",
            expected: hex(&outcome.frame),
            found: hex(&observation.frame),
        });
    }
    let flows = |flows: &BTreeMap<_, Flow>| {
        flows
            .iter()
            .map(|(key, flow)| (*key, comparable(*flow)))
            .collect()
    };
    entries(
        &mut found,
        "CONNTRACK",
        &flows(&outcome.flows),
        &flows(&observation.state.flows),
    );
    entries(
        &mut found,
        "AFFINITY",
        &outcome.affinity,
        &observation.state.affinity,
    );
    entries(
        &mut found,
        "FRAGMENTS",
        &outcome.fragments,
        &observation.state.fragments,
    );
    let (services, backends) = traffic(outcome.traffic);
    entries(&mut found, "SERVICE_TRAFFIC", &services, &observation.traffic.0);
    entries(&mut found, "BACKEND_TRAFFIC", &backends, &observation.traffic.1);
    found
}

/// `claim` is the program's own affair, and of the reply's entry `seen` and `last_seen` count for nothing.
const fn comparable(mut flow: Flow) -> Flow {
    flow.claim = 0;
    if flow.flags & flow_flags::REPLY != 0 {
        flow.seen = 0;
        flow.last_seen = 0;
    }
    flow
}

fn traffic(translated: Option<Translated>) -> (BTreeMap<u32, Traffic>, BTreeMap<u32, Traffic>) {
    let Some(translated) = translated else {
        return Default::default();
    };
    let one = Traffic {
        connections: u64::from(translated.opened),
        packets: 1,
        bytes: translated.bytes,
        pad: 0,
    };
    (
        [(translated.service, one)].into(),
        [(translated.backend, one)].into(),
    )
}

pub(crate) fn same<T: PartialEq + Debug>(
    found: &mut Vec<Difference>,
    what: &'static str,
    expected: &T,
    is: &T,
) {
    if expected != is {
        found.push(Difference {
            what,
            expected: format!("{expected:?}"),
            found: format!("{is:?}"),
        });
    }
}

/// The first entry that differs.
pub(crate) fn entries<K: Ord + Debug, V: PartialEq + Debug>(
    found: &mut Vec<Difference>,
    what: &'static str,
    expected: &BTreeMap<K, V>,
    is: &BTreeMap<K, V>,
) {
    let keys: BTreeSet<_> = expected.keys().chain(is.keys()).collect();
    for key in keys {
        let (wanted, there) = (expected.get(key), is.get(key));
        if wanted != there {
            let text = |value: Option<&V>| value.map_or("no entry".to_owned(), |value| format!("{value:?}"));
            found.push(Difference {
                what,
                expected: format!("{key:?}: {}", text(wanted)),
                found: text(there),
            });
        }
    }
}

/// Bytes in hexadecimal, four by four.
pub(super) fn hex(bytes: &[u8]) -> String {
    let words: Vec<String> = bytes
        .chunks(4)
        .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    words.join(" ")
}
