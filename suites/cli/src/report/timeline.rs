//! What every client saw over the time of a case, from its history, small enough for a report: by columns if its
//! attempts were kept, by phases if they were only counted.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    io,
    path::Path,
};

use harness::{
    compressed::each_line,
    history::{ATTEMPTS, Attempts, HISTORY},
    report::AxisReport,
};
use oracle::{
    check::Stream,
    finding::{self, Finding, Weight, outcome},
    history::{Outcome, Transport},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name of a timeline's file in the evidence of its case.
pub(crate) const FILE: &str = "timeline.yaml";
/// Limit of columns of a lane, over the time between its first and its last attempt.
const COLUMNS: u64 = 160;
/// The narrowest column, as a part of the time of the case: lanes of a few attempts have no more detail than is visible.
const NARROWEST: u64 = 1280;
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
    /// Attempts of one client to one target each. Those that failed come first, then others of the same axis.
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
    /// What its verdict found wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<Failure>,
}

/// Attempts of a lane that were outside the permitted set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Failure {
    /// The beginning of the phase that was judged.
    pub(crate) from: f64,
    /// The lane's last attempt in that phase.
    pub(crate) to: f64,
    /// What was permitted.
    pub(crate) expected: String,
    /// What happened, with counts.
    pub(crate) found: String,
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
    /// The number of those that were outside the permitted set.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) wrong: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Lane {
    /// The axis of the destination, by the label `[axis] name (address)`.
    pub(crate) fn axis(&self) -> Option<&str> {
        self.target
            .strip_prefix('[')?
            .split_once("] ")
            .map(|(axis, _)| axis)
    }

    /// The destination without its axis.
    pub(crate) fn destination(&self) -> &str {
        match self.axis() {
            Some(axis) => &self.target[axis.len() + "[] ".len()..],
            None => &self.target,
        }
    }
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

/// Findings of a verdict by the stream that they are about, each with the number of its axis.
struct Violations<'a> {
    axes: Vec<&'a str>,
    by_stream: HashMap<&'a str, (usize, &'a Finding)>,
}

impl<'a> Violations<'a> {
    fn of(axes: &'a [AxisReport]) -> Self {
        let mut by_stream = HashMap::new();
        for (number, axis) in axes.iter().enumerate() {
            let violations = axis.findings.iter();
            for finding in violations.filter(|finding| finding.weight == Weight::Violation) {
                by_stream
                    .entry(finding.subject.as_str())
                    .or_insert((number, finding));
            }
        }
        Self {
            axes: axes.iter().map(|axis| axis.name.as_str()).collect(),
            by_stream,
        }
    }

    /// The number of the axis that a lane belongs to.
    fn axis_of(&self, lane: &Lane) -> Option<usize> {
        let axis = lane.axis()?;
        self.axes.iter().position(|name| *name == axis)
    }

    /// The violation of a lane, and the number of its axis.
    fn of_lane(&self, (client, target, transport): &LaneKey) -> Option<(usize, &'a Finding)> {
        let stream = Stream {
            client: client.clone(),
            target: target.clone(),
            transport: *transport,
        };
        self.by_stream.get(stream.to_string().as_str()).copied()
    }
}

/// Whether the finding counts this outcome: its text lists outcomes with their numbers (`oracle::observations::line`).
fn counts(finding: &Finding, outcome: &str) -> bool {
    let (_, list) = finding.found.split_once("outside: ").unwrap_or_default();
    let ends = |rest: &str| rest.is_empty() || rest.starts_with([',', ';', ' ']);
    list.match_indices(outcome)
        .any(|(at, _)| list[..at].ends_with(' ') && ends(&list[at + outcome.len()..]))
}

/// The judged phase of a lane that failed, and its first wrong attempt, in microseconds since the Unix epoch.
#[derive(Clone, Copy)]
struct Window {
    from: u64,
    to: u64,
    wrong_from: u64,
}

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

/// Whether the attempts of a case were kept: its timeline has more than counts.
pub(crate) fn has_attempts(evidence: &Path) -> bool {
    evidence.join(ATTEMPTS).exists()
}

/// The timeline of the history in a folder of evidence; `None`, if it has no attempt.
///
/// `axes` are the verdicts of the case: they decide which lanes come first, and which attempts are wrong.
///
/// # Errors
/// The files can't be read. Lines that the end of their process cut off are ignored.
pub(crate) fn read(evidence: &Path, axes: &[AxisReport]) -> io::Result<Option<Timeline>> {
    let mut collected = Collected::default();
    each_line(&evidence.join(HISTORY), |line| {
        if let Ok(entry) = serde_json::from_str(line) {
            collected.add(entry);
        }
    })?;
    if has_attempts(evidence) {
        collected.counted.clear();
        each_line(&evidence.join(ATTEMPTS), |line| {
            if let Ok(attempt) = serde_json::from_str(line) {
                collected.add_attempt(attempt);
            }
        })?;
    }
    Ok(collected.timeline(&Violations::of(axes)))
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

    fn timeline(mut self, violations: &Violations<'_>) -> Option<Timeline> {
        let first = self.first_us.unwrap_or_default();
        let length = self.last_us.saturating_sub(first).max(1);
        let kept = std::mem::take(&mut self.lanes).into_iter();
        let mut lanes: Vec<(Option<usize>, Lane)> = kept
            .map(|(key, attempts)| {
                let violation = violations.of_lane(&key);
                let window = violation.and_then(|(_, finding)| self.window(finding, &attempts));
                let wrong = violation.map(|(_, finding)| finding).zip(window);
                let spans = self.by_columns(&attempts, wrong, first, length);
                let failure = wrong.map(|(finding, window)| Failure {
                    from: seconds(window.from.saturating_sub(first)),
                    to: seconds(window.to.saturating_sub(first)),
                    expected: finding.expected.clone(),
                    found: finding.found.clone(),
                });
                (violation.map(|(axis, _)| axis), lane(key, spans, failure))
            })
            .collect();
        let counted = std::mem::take(&mut self.counted).into_iter();
        lanes.extend(counted.map(|(key, counted)| (None, lane(key, by_phases(&counted, first), None))));
        if lanes.is_empty() {
            return None;
        }
        let most = if self.attempts > 0 { LANES } else { LANES_COUNTED };
        let more_lanes = lanes.len().saturating_sub(most);
        let mark = |(at, kind, text): (u64, MarkKind, String)| Mark {
            at: seconds(at.saturating_sub(first)),
            kind,
            text,
        };
        Some(Timeline {
            seconds: seconds(length),
            marks: self.marks.into_iter().take(MARKS).map(mark).collect(),
            lanes: first_lanes(lanes, violations, most),
            more_lanes,
        })
    }

    /// The phase that was judged: that of the first wrong attempt, or of the last attempt, if the finding names none.
    fn window(&self, finding: &Finding, attempts: &[(u64, u32)]) -> Option<Window> {
        let last = attempts.iter().map(|(at, _)| *at).max()?;
        let wrong_from = finding.first.iter().map(|attempt| attempt.start_us).min();
        let wrong_from = wrong_from.unwrap_or(last);
        let phases = self.marks.iter().filter(|(_, kind, _)| *kind == MarkKind::Phase);
        let phases: Vec<u64> = phases.map(|(at, ..)| *at).collect();
        let begun = phases.iter().rev().find(|at| **at <= wrong_from);
        let next = phases.iter().find(|at| **at > wrong_from).copied();
        let within = attempts.iter().map(|(at, _)| *at);
        let within = within.filter(|at| next.is_none_or(|next| *at < next));
        Some(Window {
            from: begun.copied().unwrap_or(wrong_from),
            to: within.max().unwrap_or(last).max(wrong_from),
            wrong_from,
        })
    }

    fn by_columns(
        &self,
        attempts: &[(u64, u32)],
        wrong: Option<(&Finding, Window)>,
        first: u64,
        length: u64,
    ) -> Vec<Span> {
        let starts = || attempts.iter().map(|(at, _)| *at);
        let begins = starts().min().unwrap_or(first);
        let lasts = starts().max().unwrap_or(begins).saturating_sub(begins).max(1);
        let count = (lasts * NARROWEST).div_ceil(length).clamp(1, COLUMNS);
        // A lane of one moment is still as wide as the narrowest column.
        let lasts = lasts.max(length / NARROWEST).max(1);
        let column = |at: u64| (at.saturating_sub(begins) * count / lasts).min(count - 1);
        let edge = |column: u64| seconds(begins.saturating_sub(first) + lasts * column / count);
        let is_wrong: Vec<bool> = self
            .outcomes
            .iter()
            .map(|outcome| wrong.is_some_and(|(finding, _)| counts(finding, outcome)))
            .collect();
        let is_judged = |at: u64| wrong.is_some_and(|(_, window)| at >= window.wrong_from && at <= window.to);
        let mut columns: BTreeMap<u64, (BTreeMap<String, u32>, u32)> = BTreeMap::new();
        for (at, number) in attempts {
            let (outcomes, wrong) = columns.entry(column(*at)).or_default();
            let number = *number as usize;
            *outcomes.entry(self.outcomes[number].clone()).or_default() += 1;
            *wrong += u32::from(is_wrong[number] && is_judged(*at));
        }
        let mut spans: Vec<Span> = Vec::new();
        for (column, (outcomes, wrong)) in columns {
            let next = Span {
                from: edge(column),
                to: edge(column + 1),
                outcomes,
                wrong,
            };
            match spans.last_mut() {
                Some(last) if is_more_of(last, &next) => {
                    last.to = next.to;
                    last.wrong += next.wrong;
                    for (count, more) in last.outcomes.values_mut().zip(next.outcomes.values()) {
                        *count += more;
                    }
                }
                _ => spans.push(next),
            }
        }
        spans
    }
}

/// The lanes to show: those of the first axis that failed, first those that failed themselves, then other failures, then
/// those that cover most of the time. If nothing failed, in the order of the axes.
fn first_lanes(mut lanes: Vec<(Option<usize>, Lane)>, violations: &Violations<'_>, most: usize) -> Vec<Lane> {
    let first_failed = lanes.iter().filter_map(|(axis, _)| *axis).min();
    let rank = |axis: Option<usize>, lane: &Lane| match (axis, first_failed) {
        (Some(axis), Some(first)) if axis == first => 0,
        (Some(axis), _) => 2 + axis,
        (None, Some(first)) if violations.axis_of(lane) == Some(first) => 1,
        (None, Some(_)) => usize::MAX,
        (None, None) => violations.axis_of(lane).unwrap_or(usize::MAX),
    };
    let name = |lane: &Lane| (lane.target.clone(), lane.transport.clone(), lane.client.clone());
    lanes.sort_by_cached_key(|(axis, lane)| (rank(*axis, lane), Reverse(covered(lane)), name(lane)));
    lanes.truncate(most);
    lanes.sort_by_cached_key(|(axis, lane)| (rank(*axis, lane), name(lane)));
    lanes.into_iter().map(|(_, lane)| lane).collect()
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
            wrong: 0,
        });
    }
    spans
}

fn lane((client, target, transport): LaneKey, spans: Vec<Span>, failure: Option<Failure>) -> Lane {
    Lane {
        client,
        target,
        transport: finding::transport(transport).to_owned(),
        spans,
        failure,
    }
}

/// The milliseconds that the lane covers.
fn covered(lane: &Lane) -> u64 {
    let seconds: f64 = lane.spans.iter().map(|span| span.to - span.from).sum();
    (seconds * 1e3) as u64
}

/// Whether the same single outcome continues without a gap, as right or as wrong as before.
fn is_more_of(last: &Span, next: &Span) -> bool {
    last.to >= next.from
        && next.outcomes.len() == 1
        && last.outcomes.keys().eq(next.outcomes.keys())
        && (last.wrong == 0) == (next.wrong == 0)
}

/// Rounds to milliseconds, for readability.
fn seconds(us: u64) -> f64 {
    (us as f64 / 1e3).round() / 1e3
}

#[cfg(test)]
mod tests;
