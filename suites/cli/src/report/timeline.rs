//! What every client saw over the time of a case, from its history, small enough for a report: by columns if its
//! attempts were kept, by phases if they were only counted.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::Path,
};

use harness::{
    compressed::each_line,
    history::{ATTEMPTS, Attempts, HISTORY},
};
use oracle::{
    finding::{self, outcome},
    history::{Outcome, Transport},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name of a timeline's file in the evidence of its case.
pub(crate) const FILE: &str = "timeline.yaml";
/// Columns of the time of a case.
const COLUMNS: u64 = 160;
/// Limit of lanes of one case; the history has all.
const LANES: usize = 40;
/// Limit of lanes if attempts are only counted by phase: such a case has passed, and there is little to see.
const LANES_COUNTED: usize = 12;
/// Limit of marks of one case.
const MARKS: usize = 60;
/// Limit of attempts that are read: more are shown in the history alone.
const MOST: usize = 4_000_000;

/// What every client saw, in seconds since the beginning of the case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Timeline {
    /// Duration of the case.
    pub(crate) seconds: f64,
    /// What the case did.
    pub(crate) marks: Vec<Mark>,
    /// Attempts of one client to one target each; lanes that cover most of the time come first.
    pub(crate) lanes: Vec<Lane>,
    /// Number of further lanes, which only the history has.
    pub(crate) more_lanes: usize,
}

/// Something that the case did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mark {
    /// When.
    pub(crate) at: f64,
    /// The kind of mark.
    pub(crate) kind: MarkKind,
    /// The text of the mark.
    pub(crate) text: String,
}

/// The kind of mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MarkKind {
    /// The case entered a phase.
    Phase,
    /// The case made, changed or healed a fault.
    Fault,
}

/// Attempts of one client to one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lane {
    /// The client.
    pub(crate) client: String,
    /// The destination.
    pub(crate) target: String,
    /// The transport.
    pub(crate) transport: String,
    /// Outcomes in the order of time.
    pub(crate) spans: Vec<Span>,
}

/// A time in which all attempts had one outcome, or a column with several outcomes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Span {
    /// Its beginning.
    pub(crate) from: f64,
    /// Its end.
    pub(crate) to: f64,
    /// The number of attempts with each outcome.
    pub(crate) outcomes: BTreeMap<String, u32>,
}

/// The needed fields of a line of the history.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Event {
    Phase {
        name: String,
    },
    Fault {
        what: String,
    },
    Attempts(Attempts),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Entry {
    time_us: u64,
    #[serde(flatten)]
    event: Event,
}

/// The needed fields of a line of attempts.
#[derive(Deserialize)]
struct Attempt {
    start_us: u64,
    client: String,
    target: String,
    transport: Transport,
    outcome: Outcome,
}

type LaneKey = (String, String, Transport);

/// The parts of a history that a timeline needs.
#[derive(Default)]
struct Collected {
    first_us: Option<u64>,
    last_us: u64,
    marks: Vec<(u64, MarkKind, String)>,
    /// Each attempt: its start, and the number of its outcome.
    lanes: HashMap<LaneKey, Vec<(u64, u32)>>,
    outcomes: Vec<String>,
    known: HashMap<String, u32>,
    attempts: usize,
    /// Counts, if attempts were not kept.
    counted: HashMap<LaneKey, Vec<Attempts>>,
}

/// The timeline of the history in a folder of evidence; `None`, if it has no attempt.
///
/// # Errors
/// The files can't be read. Lines that the end of their process cut off are ignored.
pub(crate) fn read(evidence: &Path) -> io::Result<Option<Timeline>> {
    let mut collected = Collected::default();
    each_line(&evidence.join(HISTORY), |line| {
        if let Ok(entry) = serde_json::from_str(line) {
            collected.add(entry);
        }
    })?;
    let attempts = evidence.join(ATTEMPTS);
    if attempts.exists() {
        collected.counted.clear();
        each_line(&attempts, |line| {
            if let Ok(attempt) = serde_json::from_str(line) {
                collected.add_attempt(attempt);
            }
        })?;
    }
    Ok(collected.timeline())
}

impl Collected {
    fn lasts(&mut self, from: u64, to: u64) {
        self.first_us = Some(self.first_us.map_or(from, |first| first.min(from)));
        self.last_us = self.last_us.max(to);
    }

    fn add(&mut self, Entry { time_us, event }: Entry) {
        match event {
            Event::Phase { name } => self.marks.push((time_us, MarkKind::Phase, name)),
            Event::Fault { what } => self.marks.push((time_us, MarkKind::Fault, what)),
            Event::Attempts(counted) => {
                self.lasts(counted.first_us, counted.last_us);
                let key = (counted.client.clone(), counted.target.clone(), counted.transport);
                self.counted.entry(key).or_default().push(counted);
                // The line is written after its phase, so its own time is no part of the timeline.
                return;
            }
            Event::Other => {}
        }
        self.lasts(time_us, time_us);
    }

    fn add_attempt(&mut self, attempt: Attempt) {
        self.lasts(attempt.start_us, attempt.start_us);
        if self.attempts >= MOST {
            return;
        }
        self.attempts += 1;
        let words = outcome(&attempt.outcome);
        let next = u32::try_from(self.outcomes.len()).unwrap_or(u32::MAX);
        let number = *self.known.entry(words.clone()).or_insert(next);
        if number == next {
            self.outcomes.push(words);
        }
        let key = (attempt.client, attempt.target, attempt.transport);
        let lane = self.lanes.entry(key).or_default();
        lane.push((attempt.start_us, number));
    }

    fn timeline(mut self) -> Option<Timeline> {
        let first = self.first_us.unwrap_or_default();
        let length = self.last_us.saturating_sub(first).max(1);
        let lanes = std::mem::take(&mut self.lanes).into_iter();
        let mut lanes: Vec<_> = lanes
            .map(|(key, attempts)| lane(key, self.by_columns(&attempts, first, length)))
            .collect();
        let counted = std::mem::take(&mut self.counted).into_iter();
        lanes.extend(counted.map(|(key, counted)| lane(key, by_phases(&counted, first))));
        if lanes.is_empty() {
            return None;
        }
        let most = if self.attempts > 0 { LANES } else { LANES_COUNTED };
        let name = |lane: &Lane| (lane.target.clone(), lane.client.clone(), lane.transport.clone());
        lanes.sort_by_cached_key(|lane| (std::cmp::Reverse(covered(lane)), name(lane)));
        let more_lanes = lanes.len().saturating_sub(most);
        lanes.truncate(most);
        lanes.sort_by_cached_key(name);
        let mark = |(at, kind, text): (u64, MarkKind, String)| Mark {
            at: seconds(at.saturating_sub(first)),
            kind,
            text,
        };
        Some(Timeline {
            seconds: seconds(length),
            marks: self.marks.into_iter().take(MARKS).map(mark).collect(),
            lanes,
            more_lanes,
        })
    }

    fn by_columns(&self, attempts: &[(u64, u32)], first: u64, length: u64) -> Vec<Span> {
        let column = |at: u64| (at.saturating_sub(first) * COLUMNS / length).min(COLUMNS - 1);
        let edge = |column: u64| seconds(length * column / COLUMNS);
        let mut columns: BTreeMap<u64, BTreeMap<String, u32>> = BTreeMap::new();
        for (at, number) in attempts {
            let outcomes = columns.entry(column(*at)).or_default();
            *outcomes
                .entry(self.outcomes[*number as usize].clone())
                .or_default() += 1;
        }
        let mut spans: Vec<Span> = Vec::new();
        for (column, outcomes) in columns {
            let (from, to) = (edge(column), edge(column + 1));
            match spans.last_mut() {
                Some(last) if is_more_of(last, from, &outcomes) => {
                    last.to = to;
                    for (count, more) in last.outcomes.values_mut().zip(outcomes.values()) {
                        *count += more;
                    }
                }
                _ => spans.push(Span { from, to, outcomes }),
            }
        }
        spans
    }
}

/// One span for each phase, each beginning at the end of the last or later: an attempt may continue into the next
/// phase.
fn by_phases(counted: &[Attempts], first: u64) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for counted in counted {
        let ended = spans.last().map_or(0.0, |last| last.to);
        let from = seconds(counted.first_us.saturating_sub(first)).max(ended);
        let outcomes = counted.outcomes.iter();
        spans.push(Span {
            from,
            to: seconds(counted.last_us.saturating_sub(first)).max(from),
            outcomes: outcomes
                .map(|(words, count)| (words.clone(), u32::try_from(*count).unwrap_or(u32::MAX)))
                .collect(),
        });
    }
    spans
}

fn lane((client, target, transport): LaneKey, spans: Vec<Span>) -> Lane {
    Lane {
        client,
        target,
        transport: finding::transport(transport).to_owned(),
        spans,
    }
}

/// The milliseconds that the lane covers.
fn covered(lane: &Lane) -> u64 {
    let seconds: f64 = lane.spans.iter().map(|span| span.to - span.from).sum();
    (seconds * 1e3) as u64
}

/// Whether the same single outcome continues without a gap.
fn is_more_of(last: &Span, from: f64, outcomes: &BTreeMap<String, u32>) -> bool {
    last.to >= from && outcomes.len() == 1 && last.outcomes.keys().eq(outcomes.keys())
}

/// Rounds to milliseconds, for readability.
fn seconds(us: u64) -> f64 {
    (us as f64 / 1e3).round() / 1e3
}

#[cfg(test)]
mod tests;
