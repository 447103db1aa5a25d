//! A row as it is written.

use std::collections::BTreeMap;

use lb_abi::{AffinityKey, BackendId, Counter, Flow, FragmentKey, Port, Traffic, Tuple, flow_flags};

use super::{
    Mismatch, Stage, StageError, StepResult,
    maps::{Scene, now},
};
use crate::{
    check::check,
    table::{Connection, Entry, Row, Step},
};

/// For how long a row may take, in seconds, on a machine that has time for it: ages are as exact as that.
const PATIENCE: u32 = 2;
/// How often a row is played at most.
const TIMES: u32 = 5;

/// From when to when something may have been noted, in seconds.
type Window = [u32; 2];

impl Stage {
    /// Plays a row: every packet, and all that it leaves.
    ///
    /// A row that does not hold after more than 2 s (`PATIENCE`) is played again, a few times (`TIMES`): its ages were
    /// not what the row states.
    ///
    /// # Errors
    /// [`StageError::Mismatch`] if it does not hold.
    pub fn play(&mut self, row: &Row) -> Result<(), StageError> {
        let mut played = 1;
        loop {
            let scene = self.set(&row.given)?;
            match self.play_once(row, &scene) {
                Err(StageError::Mismatch(_)) if scene.elapsed() > PATIENCE && played < TIMES => played += 1,
                result => return result,
            }
        }
    }

    fn play_once(&self, row: &Row, scene: &Scene) -> Result<(), StageError> {
        for (index, step) in row.steps.iter().enumerate() {
            self.traffic(step);
            let seen = self.see(step, &step.packet.bytes())?;
            judge(row, index, &seen)?;
            let traffic = self.traffic(step);
            let expected = traffic_of(step);
            if traffic != [expected; 2] {
                return Err(Mismatch::new(row, index, "traffic", expected, traffic).into());
            }
        }
        self.judge_flows(row, scene)?;
        self.judge_notes(row, scene)
    }

    fn judge_flows(&self, row: &Row, scene: &Scene) -> Result<(), StageError> {
        let window = |connection: &Connection| match connection.age {
            Some(age) => [scene.begun.wrapping_sub_signed(age); 2],
            None => [scene.begun, now()],
        };
        let given = row.given.entries.iter().filter_map(|entry| match entry {
            Entry::Connection(connection) => Some(*connection),
            _ => None,
        });
        let connections = row.connections.clone().unwrap_or_else(|| given.collect());
        let mut expected: BTreeMap<Tuple, (Flow, Window)> = BTreeMap::new();
        for connection in &connections {
            for (tuple, flow) in connection.entries(scene.begun) {
                expected.insert(tuple, (flow, window(connection)));
            }
        }
        let found: BTreeMap<Tuple, Flow> = self.detached.maps().conntrack.entries()?.into_iter().collect();
        let same = expected.len() == found.len()
            && expected.iter().all(|(tuple, (flow, window))| {
                found.get(tuple).is_some_and(|found| alike(flow, window, found))
            });
        if same {
            Ok(())
        } else {
            Err(Mismatch::map(row, "CONNTRACK after all", &expected, &found).into())
        }
    }

    fn judge_notes(&self, row: &Row, scene: &Scene) -> Result<(), StageError> {
        let given = row.given.entries.iter().filter(|entry| {
            let replaced = row.noted.iter().any(|noted| noted.same_key(entry));
            !replaced
        });
        let mut affinity: BTreeMap<AffinityKey, (BackendId, Window)> = BTreeMap::new();
        let mut fragments: BTreeMap<FragmentKey, ([Port; 2], u32, Window)> = BTreeMap::new();
        let now = now();
        for (entry, fresh) in given
            .map(|entry| (entry, false))
            .chain(row.noted.iter().map(|entry| (entry, true)))
        {
            let window = |age: i32| match fresh {
                true => [scene.begun, now],
                false => [scene.begun.wrapping_sub_signed(age); 2],
            };
            match entry {
                Entry::Affinity(key, backend, age) => {
                    affinity.insert(*key, (*backend, window(*age)));
                }
                Entry::Fragment(key, ports, held, age) => {
                    fragments.insert(*key, (*ports, *held, window(*age)));
                }
                _ => {}
            }
        }
        let maps = self.detached.maps();
        let found: BTreeMap<_, _> = maps.affinity.entries()?.into_iter().collect();
        let same = affinity.len() == found.len()
            && affinity.iter().all(|(key, (backend, window))| {
                found
                    .get(key)
                    .is_some_and(|found| found.backend == *backend && within(window, found.seconds))
            });
        if !same {
            return Err(Mismatch::map(row, "AFFINITY after all", &affinity, &found).into());
        }
        let found: BTreeMap<_, _> = maps.fragments.entries()?.into_iter().collect();
        let same = fragments.len() == found.len()
            && fragments.iter().all(|(key, (ports, held, window))| {
                found.get(key).is_some_and(|found| {
                    [found.source, found.destination] == *ports
                        && found.held == *held
                        && within(window, found.seconds)
                })
            });
        if !same {
            return Err(Mismatch::map(row, "FRAGMENTS after all", &fragments, &found).into());
        }
        Ok(())
    }
}

/// Verdict, counter and packet.
fn judge(row: &Row, index: usize, seen: &StepResult) -> Result<(), Box<Mismatch>> {
    let step = &row.steps[index];
    let beside = step.reused.then_some(Counter::SnatReused);
    let counted: Vec<Counter> = step.counter.into_iter().chain(beside).collect();
    if seen.counted != counted {
        return Err(Mismatch::new(row, index, "counters", counted, &seen.counted));
    }
    if seen.verdict != step.verdict.number() {
        return Err(Mismatch::new(
            row,
            index,
            "verdict",
            step.verdict.number(),
            seen.verdict,
        ));
    }
    let (input, expected) = (step.packet.bytes(), step.out.bytes());
    if seen.packet != expected {
        return Err(Mismatch::packet(
            row,
            index,
            "packet out",
            &expected,
            &seen.packet,
        ));
    }
    if seen.packet != input && step.checked {
        check(&seen.packet)
            .map_err(|wrong| Mismatch::new(row, index, "packet out", "a packet that is whole", wrong))?;
    }
    Ok(())
}

/// What a step adds to the traffic of its service port and its backend.
fn traffic_of(step: &Step) -> Traffic {
    let connections = match step.counter {
        Some(Counter::FlowOpened) => 1,
        Some(Counter::FlowForwarded | Counter::FlowReplied) => 0,
        _ => return Traffic::default(),
    };
    Traffic {
        connections,
        packets: 1,
        bytes: step.packet.traffic(),
        pad: 0,
    }
}

/// Whether a flow's entry is the one that was expected. The `seen` and `last_seen` of the reply's do not count:
/// the forward one's count. Claims are anything.
fn alike(expected: &Flow, window: &Window, found: &Flow) -> bool {
    let seen = expected.flags & flow_flags::REPLY != 0
        || (expected.seen == found.seen && within(window, found.last_seen));
    seen && expected.to == found.to
        && expected.service == found.service
        && expected.backend == found.backend
        && expected.flags == found.flags
        && found.pad == 0
}

const fn within([from, to]: &Window, time: u32) -> bool {
    to.wrapping_sub(*from) >= time.wrapping_sub(*from)
}
