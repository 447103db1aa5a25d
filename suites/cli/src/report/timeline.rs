//! What every client saw over the time of a case, from its history, small enough for a report.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{self, BufRead as _, BufReader},
    path::Path,
};

use oracle::{finding::outcome, history::Outcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Columns that the time of a case is divided into.
const COLUMNS: u64 = 160;
/// Most lanes of one case; the history has all.
const LANES: usize = 40;
/// Most marks of one case.
const MARKS: usize = 60;
/// Most attempts that are read: a long run's have their place in the history alone.
const ATTEMPTS: usize = 4_000_000;

/// What every client saw, in seconds since the beginning of the case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Timeline {
    /// How long.
    pub(crate) seconds: f64,
    /// What the case did meanwhile.
    pub(crate) marks: Vec<Mark>,
    /// Attempts of one client to one target each: those that cover most of the time.
    pub(crate) lanes: Vec<Lane>,
    /// Further lanes, which the history alone has.
    pub(crate) more_lanes: usize,
}

/// Something that the case did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mark {
    /// When.
    pub(crate) at: f64,
    /// What kind.
    pub(crate) kind: MarkKind,
    /// In words.
    pub(crate) text: String,
}

/// What kind of mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MarkKind {
    /// It entered a part of itself.
    Phase,
    /// It made, changed or healed a fault.
    Fault,
}

/// Attempts of one client to one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lane {
    /// Who.
    pub(crate) client: String,
    /// What it dialled.
    pub(crate) target: String,
    /// How.
    pub(crate) transport: String,
    /// What came of it, in the order of time.
    pub(crate) spans: Vec<Span>,
}

/// A time during which one thing came of all attempts, or a column with several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Span {
    /// Its beginning.
    pub(crate) from: f64,
    /// Its end.
    pub(crate) to: f64,
    /// Outcomes in words, and how many attempts ended so.
    pub(crate) outcomes: BTreeMap<String, u32>,
}

/// Of a line of a history, what is needed here.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Event {
    Phase {
        name: String,
    },
    Fault {
        what: String,
    },
    Attempt(Box<Attempt>),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Attempt {
    start_us: u64,
    client: String,
    target: String,
    transport: String,
    outcome: Outcome,
}

#[derive(Deserialize)]
struct Entry {
    time_us: u64,
    #[serde(flatten)]
    event: Event,
}

type LaneKey = (String, String, String);

/// Everything of a history that a timeline needs.
#[derive(Default)]
struct Collected {
    first_us: Option<u64>,
    last_us: u64,
    marks: Vec<(u64, MarkKind, String)>,
    lanes: HashMap<LaneKey, Vec<(u64, u32)>>,
    outcomes: Vec<String>,
    known: HashMap<String, u32>,
    attempts: usize,
}

/// The timeline of a history; nothing, if it has no attempt.
///
/// # Errors
/// The file can't be read. A last line that was cut off by the end of its process is left out.
pub(crate) fn read(history: &Path) -> io::Result<Option<Timeline>> {
    let mut collected = Collected::default();
    for line in BufReader::new(File::open(history)?).lines() {
        if let Ok(entry) = serde_json::from_str::<Entry>(&line?) {
            collected.add(entry);
        }
    }
    Ok((!collected.lanes.is_empty()).then(|| collected.timeline()))
}

impl Collected {
    fn add(&mut self, entry: Entry) {
        let at = match &entry.event {
            Event::Attempt(attempt) => attempt.start_us,
            _ => entry.time_us,
        };
        self.first_us = Some(self.first_us.map_or(at, |first| first.min(at)));
        self.last_us = self.last_us.max(at);
        match entry.event {
            Event::Phase { name } => self.marks.push((at, MarkKind::Phase, name)),
            Event::Fault { what } => self.marks.push((at, MarkKind::Fault, what)),
            Event::Attempt(attempt) if self.attempts < ATTEMPTS => {
                self.attempts += 1;
                let words = outcome(&attempt.outcome);
                let next = u32::try_from(self.outcomes.len()).unwrap_or(u32::MAX);
                let number = *self.known.entry(words.clone()).or_insert(next);
                if number == next {
                    self.outcomes.push(words);
                }
                let key = (attempt.client, attempt.target, attempt.transport);
                self.lanes
                    .entry(key)
                    .or_default()
                    .push((attempt.start_us, number));
            }
            Event::Attempt(_) | Event::Other => {}
        }
    }

    fn timeline(self) -> Timeline {
        let first = self.first_us.unwrap_or_default();
        let length = self.last_us.saturating_sub(first).max(1);
        let seconds = |us: u64| us as f64 / 1e6;
        let column = |at: u64| (at.saturating_sub(first) * COLUMNS / length).min(COLUMNS - 1);
        let edge = |column: u64| round(seconds(length * column / COLUMNS));
        let mut lanes = Vec::new();
        for ((client, target, transport), attempts) in self.lanes {
            let mut columns: BTreeMap<u64, BTreeMap<String, u32>> = BTreeMap::new();
            for (at, number) in attempts {
                let outcomes = columns.entry(column(at)).or_default();
                *outcomes
                    .entry(self.outcomes[number as usize].clone())
                    .or_default() += 1;
            }
            let covered = columns.len();
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
            lanes.push((
                covered,
                Lane {
                    client,
                    target,
                    transport,
                    spans,
                },
            ));
        }
        let name = |lane: &Lane| (lane.target.clone(), lane.client.clone(), lane.transport.clone());
        lanes.sort_by_cached_key(|(covered, lane)| (std::cmp::Reverse(*covered), name(lane)));
        let more_lanes = lanes.len().saturating_sub(LANES);
        let mut lanes: Vec<Lane> = lanes.into_iter().take(LANES).map(|(_, lane)| lane).collect();
        lanes.sort_by_cached_key(name);
        let mark = |(at, kind, text): (u64, MarkKind, String)| Mark {
            at: round(seconds(at.saturating_sub(first))),
            kind,
            text,
        };
        Timeline {
            seconds: round(seconds(length)),
            marks: self.marks.into_iter().take(MARKS).map(mark).collect(),
            lanes,
            more_lanes,
        }
    }
}

/// The same single outcome, right after.
fn is_more_of(last: &Span, from: f64, outcomes: &BTreeMap<String, u32>) -> bool {
    last.to >= from && outcomes.len() == 1 && last.outcomes.keys().eq(outcomes.keys())
}

/// Milliseconds are enough, and read better.
fn round(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn attempt(second: u64, client: &str, outcome: &str) -> String {
        format!(
            r#"{{"time_us":{now},"event":"attempt","start_us":{start},"end_us":{now},"client":"{client}","target":"[a] t","transport":"TCP","destination":"10.0.0.1:80","local":null,"nonce":"n","outcome":{outcome}}}"#,
            now = second * 1_000_000 + 900_000,
            start = second * 1_000_000,
        )
    }

    fn timeline(lines: &[String]) -> Option<Timeline> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{}", lines.join("\n")).unwrap();
        read(file.path()).unwrap()
    }

    const REFUSED: &str = r#"{"result":"failed","stage":"handshake","errno":"ECONNREFUSED"}"#;
    const SILENT: &str = r#"{"result":"timeout","stage":"handshake"}"#;

    #[test]
    fn what_one_client_saw_is_one_lane_and_what_stays_the_same_is_one_span() {
        let mut lines = vec![
            r#"{"time_us":0,"event":"phase","name":"control"}"#.to_owned(),
            r#"{"time_us":1000000,"event":"fault","what":"the agent of node1 is killed"}"#.to_owned(),
            r#"{"time_us":1000000,"event":"seen","kind":"Service","object":{}}"#.to_owned(),
        ];
        // Four attempts in each second: in every column at least one.
        for quarter in 0..=640 {
            let outcome = if quarter < 320 { REFUSED } else { SILENT };
            let line = attempt(0, "pod@node1", outcome);
            lines.push(line.replace(r#""start_us":0"#, &format!(r#""start_us":{}"#, quarter * 250_000)));
        }
        lines.push(attempt(3, "host@node1", SILENT));
        lines.push(r#"{"time_us":1,"event":"att"#.to_owned());
        let found = timeline(&lines).unwrap();
        assert_eq!((found.seconds, found.more_lanes), (160.0, 0));
        assert_eq!(found.marks.len(), 2);
        assert_eq!((found.marks[1].at, found.marks[1].kind), (1.0, MarkKind::Fault));
        let clients: Vec<_> = found.lanes.iter().map(|lane| lane.client.as_str()).collect();
        assert_eq!(clients, ["host@node1", "pod@node1"]);
        let spans = &found.lanes[1].spans;
        assert_eq!(spans.len(), 2, "{spans:?}");
        assert_eq!((spans[0].from, spans[0].to, spans[1].to), (0.0, 80.0, 160.0));
        assert_eq!(
            spans[0].outcomes,
            BTreeMap::from([("ECONNREFUSED from the handshake".to_owned(), 320)])
        );
    }

    #[test]
    fn lanes_are_bounded_and_those_that_cover_most_stay() {
        let mut lines: Vec<String> = (0..100).map(|n| attempt(n, &format!("c{n}"), SILENT)).collect();
        lines.extend((0..100).map(|n| attempt(n, "background", REFUSED)));
        let found = timeline(&lines).unwrap();
        assert_eq!((found.lanes.len(), found.more_lanes), (LANES, 101 - LANES));
        assert!(found.lanes.iter().any(|lane| lane.client == "background"));
    }

    #[test]
    fn a_history_without_attempts_has_no_timeline() {
        assert_eq!(
            timeline(&[r#"{"time_us":0,"event":"phase","name":"x"}"#.to_owned()]),
            None
        );
    }
}
