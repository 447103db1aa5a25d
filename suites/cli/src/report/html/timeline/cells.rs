//! The appearance of parts of a strip: which outcomes are shown with which class, and neighbours that look alike as one.
//!
//! Each kind of outcome has a colour and a height, to be readable without colours: answers are full, refusals half, silence
//! is low.

use std::collections::{BTreeMap, BTreeSet};

use super::super::super::timeline::{Lane, Span};

/// Horizontal units of a strip.
pub(super) const UNITS: u32 = 240;
/// Height of a strip.
pub(super) const HEIGHT: u32 = 14;
/// Limit of units without attempts that are drawn as what was before and after them.
const GAP: u32 = 4;
/// Limit of the parts of a strip: more are shown coarser.
const RUNS: usize = 28;
/// Units that are one part where there would be too many.
const GRAINS: [u32; 4] = [1, 2, 4, 8];
/// Backends that have a colour of their own.
const COLOURS: usize = 6;
/// Steps of shares: neighbours with nearly the same shares look alike.
const STEPS: u32 = 4;

/// How an attempt ended, as far as colours tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Answered by the backend with this number.
    Backend(usize),
    /// Answered by several backends in turn.
    Several,
    /// Failed at once with an error that says so.
    Refused,
    /// No answer in time.
    Silent,
    /// Another error, or an answer from something else.
    Other,
}

impl Kind {
    pub(super) fn class(self) -> String {
        match self {
            Self::Backend(number) => format!("a{}", number.min(COLOURS)),
            Self::Several => "several".to_owned(),
            Self::Refused => "refused".to_owned(),
            Self::Silent => "silent".to_owned(),
            Self::Other => "other".to_owned(),
        }
    }

    /// Height of its bar, where it is the only kind.
    pub(super) fn height(self) -> u32 {
        match self {
            Self::Backend(_) | Self::Several => HEIGHT,
            Self::Refused => 8,
            Self::Silent => 4,
            Self::Other => 11,
        }
    }

    fn is_answer(self) -> bool {
        matches!(self, Self::Backend(_) | Self::Several)
    }
}

/// Numbers of the backends, in the order in which the lanes show them.
#[derive(Debug, Default)]
pub(super) struct Backends {
    names: Vec<String>,
}

impl Backends {
    pub(super) fn of(lanes: &[&Lane]) -> Self {
        let mut names: Vec<String> = Vec::new();
        let spans = lanes.iter().flat_map(|lane| &lane.spans);
        for outcome in spans.flat_map(|span| span.outcomes.keys()) {
            if let Some(name) = backend(outcome)
                && !names.iter().any(|known| known == name)
            {
                names.push(name.to_owned());
            }
        }
        Self { names }
    }

    /// The shown name of a backend: without its namespace, if that tells no two apart.
    pub(super) fn label(&self, kind: Kind) -> String {
        let Kind::Backend(number) = kind else {
            return match kind {
                Kind::Several => "answered by several backends in turn",
                Kind::Refused => "refused",
                Kind::Silent => "no answer",
                Kind::Other | Kind::Backend(_) => "another error or answer",
            }
            .to_owned();
        };
        if number >= COLOURS {
            return "answered by other backends".to_owned();
        }
        let name = &self.names[number];
        let short = |name: &str| name.split('.').next().unwrap_or(name).to_owned();
        let alike = self.names.iter().filter(|other| short(other) == short(name));
        let shown = if alike.count() == 1 {
            short(name)
        } else {
            name.clone()
        };
        format!("answered by {shown}")
    }

    fn kind(&self, outcome: &str) -> Kind {
        let refusals = ["ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "EPERM"];
        if let Some(name) = backend(outcome) {
            let number = self.names.iter().position(|known| known == name);
            Kind::Backend(number.unwrap_or(COLOURS).min(COLOURS))
        } else if outcome.starts_with("nothing") {
            Kind::Silent
        } else if refusals.iter().any(|errno| outcome.starts_with(errno)) {
            Kind::Refused
        } else {
            Kind::Other
        }
    }
}

/// The backend that answered, whatever the port.
fn backend(outcome: &str) -> Option<&str> {
    let identity = outcome.strip_prefix("answered by ")?;
    if identity.starts_with("no probe server") {
        return None;
    }
    identity.split('/').next()
}

/// What a part of a strip looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    /// The answers, if there are any.
    pub(super) answers: Option<Kind>,
    /// The most frequent of other outcomes.
    pub(super) others: Option<Kind>,
    /// Steps of the height that `others` have.
    share: u32,
    /// Steps of the height that wrong outcomes have.
    wrong: u32,
}

impl Cell {
    fn of(outcomes: &BTreeMap<&str, u32>, wrong: u32, backends: &Backends) -> Self {
        let mut answered: BTreeSet<Kind> = BTreeSet::new();
        let mut others: BTreeMap<Kind, u32> = BTreeMap::new();
        let mut total = 0;
        for (outcome, count) in outcomes {
            let kind = backends.kind(outcome);
            if kind.is_answer() {
                answered.insert(kind);
            } else {
                *others.entry(kind).or_default() += count;
            }
            total += count;
        }
        let answers = match answered.len() {
            0 => None,
            1 => answered.first().copied(),
            _ => Some(Kind::Several),
        };
        let failed: u32 = others.values().sum();
        let most = others.iter().max_by_key(|(_, count)| **count);
        Self {
            answers,
            others: most.map(|(kind, _)| *kind),
            share: steps(failed, total),
            wrong: steps(wrong, total),
        }
    }

    /// The bars: kind, top, height.
    pub(super) fn bars(&self) -> Vec<(Kind, u32, u32)> {
        let others = match (self.answers, self.others) {
            (None, Some(kind)) => kind.height(),
            _ => self.share * HEIGHT / STEPS,
        };
        let answers = self.answers.map(|kind| (kind, others, HEIGHT - others));
        let top = if self.answers.is_some() {
            0
        } else {
            HEIGHT - others
        };
        let others = self.others.map(|kind| (kind, top, others));
        answers.into_iter().chain(others).collect()
    }

    /// Height of the mark of wrong outcomes; `None` without any.
    pub(super) fn wrong(&self) -> Option<u32> {
        (self.wrong > 0).then(|| (self.wrong * HEIGHT).div_ceil(STEPS))
    }
}

/// The share in steps: only none is zero, and only all is all.
fn steps(part: u32, of: u32) -> u32 {
    if part == 0 {
        0
    } else if part >= of {
        STEPS
    } else {
        let rounded = (u64::from(part) * u64::from(STEPS) * 2 / u64::from(of)).div_ceil(2);
        u32::try_from(rounded).unwrap_or(STEPS).clamp(1, STEPS - 1)
    }
}

/// Neighbouring parts of a strip that look alike.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run<'a> {
    /// The first unit.
    pub(super) from: u32,
    /// The unit after the last one.
    pub(super) to: u32,
    pub(super) cell: Cell,
    /// Seconds of the first and the last attempt.
    pub(super) seconds: (f64, f64),
    /// The number of attempts with each outcome.
    pub(super) outcomes: BTreeMap<&'a str, u32>,
    /// The number of wrong ones.
    pub(super) wrong: u32,
}

/// The parts of a lane between two times.
pub(super) fn runs<'a>(lane: &'a Lane, range: (f64, f64), backends: &Backends) -> Vec<Run<'a>> {
    let mut found = Vec::new();
    for grain in GRAINS {
        found = runs_of(lane, range, backends, grain);
        if found.len() <= RUNS {
            break;
        }
    }
    found
}

fn runs_of<'a>(lane: &'a Lane, (from, to): (f64, f64), backends: &Backends, grain: u32) -> Vec<Run<'a>> {
    let unit = |seconds: f64| {
        let part = ((seconds - from) / (to - from)).clamp(0.0, 1.0);
        part * f64::from(UNITS)
    };
    // Spans that begin in the same units are one part.
    let mut parts: BTreeMap<u32, Vec<&Span>> = BTreeMap::new();
    for span in &lane.spans {
        if span.to >= from && span.from <= to {
            let first = (unit(span.from).floor() as u32).min(UNITS - 1);
            parts.entry(first / grain * grain).or_default().push(span);
        }
    }
    let starts: Vec<u32> = parts.keys().copied().collect();
    let nexts = starts.iter().skip(1).copied().chain([UNITS]);
    let mut runs: Vec<Run<'a>> = Vec::new();
    for ((first, spans), next) in parts.into_iter().zip(nexts) {
        let mut outcomes: BTreeMap<&str, u32> = BTreeMap::new();
        for (outcome, count) in spans.iter().flat_map(|span| &span.outcomes) {
            *outcomes.entry(outcome.as_str()).or_default() += count;
        }
        let wrong = spans.iter().map(|span| span.wrong).sum();
        let end = spans.iter().map(|span| span.to).fold(from, f64::max);
        let part = Run {
            from: first,
            to: (unit(end).ceil() as u32).clamp(first + 1, next),
            cell: Cell::of(&outcomes, wrong, backends),
            seconds: (spans[0].from, end),
            outcomes,
            wrong,
        };
        match runs.last_mut() {
            Some(last) if last.cell == part.cell && part.from - last.to <= GAP => last.extend(part),
            _ => runs.push(part),
        }
    }
    runs
}

/// The parts with wrong outcomes, close ones as one, however their other outcomes look.
pub(super) fn wrong<'a>(runs: &[Run<'a>]) -> Vec<Run<'a>> {
    let mut found: Vec<Run<'a>> = Vec::new();
    for run in runs.iter().filter(|run| run.wrong > 0) {
        match found.last_mut() {
            Some(last) if run.from - last.to <= GAP => {
                last.extend(run.clone());
                last.cell.wrong = steps(last.wrong, last.outcomes.values().sum());
            }
            _ => found.push(run.clone()),
        }
    }
    found
}

impl<'a> Run<'a> {
    fn extend(&mut self, next: Self) {
        self.to = next.to;
        self.seconds.1 = next.seconds.1;
        self.wrong += next.wrong;
        for (outcome, count) in next.outcomes {
            *self.outcomes.entry(outcome).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: f64, to: f64, outcomes: &[(&str, u32)], wrong: u32) -> Span {
        let outcome = |(words, count): &(&str, u32)| ((*words).to_owned(), *count);
        Span {
            from,
            to,
            outcomes: outcomes.iter().map(outcome).collect(),
            wrong,
        }
    }

    fn lane(spans: Vec<Span>) -> Lane {
        Lane {
            client: "c".into(),
            target: "t".into(),
            transport: "TCP".into(),
            spans,
            failure: None,
        }
    }

    const ONE: &str = "answered by one.ns/TCP/80";
    const TWO: &str = "answered by two.ns/TCP/80";
    const REFUSED: &str = "ECONNREFUSED from connect";

    #[test]
    fn neighbours_that_look_alike_are_one_run_and_wrong_ones_are_another() {
        let lane = lane(vec![
            span(0.0, 10.0, &[(ONE, 3), (TWO, 4)], 0),
            span(10.0, 20.0, &[(ONE, 5), (TWO, 1)], 0),
            span(20.0, 30.0, &[(REFUSED, 2)], 0),
            span(30.0, 40.0, &[(REFUSED, 7)], 7),
            span(41.0, 60.0, &[(REFUSED, 1)], 1),
        ]);
        let backends = Backends::of(&[&lane]);
        let runs = runs(&lane, (0.0, 60.0), &backends);
        let shown: Vec<_> = runs
            .iter()
            .map(|run| (run.from, run.to, run.wrong, run.cell.bars()))
            .collect();
        assert_eq!(
            shown,
            [
                (0, 80, 0, vec![(Kind::Several, 0, 14)]),
                (80, 120, 0, vec![(Kind::Refused, 6, 8)]),
                (120, 240, 8, vec![(Kind::Refused, 6, 8)]),
            ]
        );
        assert_eq!(runs[0].outcomes, BTreeMap::from([(ONE, 8), (TWO, 5)]));
        let wrong: Vec<_> = runs.iter().map(|run| run.cell.wrong()).collect();
        assert_eq!(wrong, [None, None, Some(14)]);
    }

    #[test]
    fn what_changes_all_the_time_is_shown_coarser() {
        let one_and_two = |column: u32| [(ONE, 1 + column % 2), (REFUSED, 1 + column % 3)];
        let columns = |column: u32| {
            let from = f64::from(column);
            span(from, from + 1.0, &one_and_two(column), column % 2)
        };
        let lane = lane((0..240).map(columns).collect());
        let backends = Backends::of(&[&lane]);
        let range = (0.0, 240.0);
        let [fine, coarse] = [1, 8].map(|grain| runs_of(&lane, range, &backends, grain));
        assert!(
            fine.len() > RUNS && coarse.len() <= RUNS,
            "{} {}",
            fine.len(),
            coarse.len()
        );
        let shown = runs(&lane, range, &backends);
        assert!(shown.len() <= RUNS, "{}", shown.len());
        let all = |runs: &[Run<'_>]| runs.iter().map(|run| run.wrong).sum::<u32>();
        assert_eq!((all(&fine), all(&shown)), (120, 120), "nothing is lost");
        let wrong = wrong(&shown);
        assert_eq!(
            (wrong.len(), wrong[0].wrong, wrong[0].cell.wrong()),
            (1, 120, Some(4))
        );
    }

    #[test]
    fn shares_are_steps_and_few_wrong_outcomes_among_many_are_visible() {
        assert_eq!(
            [(0, 9), (9, 9), (1, 999), (998, 999), (5, 10)].map(|(part, of)| steps(part, of)),
            [0, 4, 1, 3, 2]
        );
        let lane = lane(vec![span(0.0, 1.0, &[(ONE, 99), (REFUSED, 1)], 1)]);
        let backends = Backends::of(&[&lane]);
        let run = &runs(&lane, (0.0, 1.0), &backends)[0];
        assert_eq!(
            run.cell.bars(),
            [(Kind::Backend(0), 3, 11), (Kind::Refused, 0, 3)]
        );
        assert_eq!(run.cell.wrong(), Some(4));
    }

    #[test]
    fn backends_are_named_as_short_as_possible_and_only_some_have_a_colour() {
        let answered = |name: &str| format!("answered by {name}/TCP/80");
        let names = ["a.ns", "b.one", "b.two", "c.ns", "d.ns", "e.ns", "f.ns", "g.ns"].map(answered);
        let counted: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        let lane = lane(vec![span(0.0, 1.0, &counted, 0)]);
        let backends = Backends::of(&[&lane]);
        let label = |outcome: &str| backends.label(backends.kind(outcome));
        assert_eq!(label(&names[0]), "answered by a");
        assert_eq!(label(&names[1]), "answered by b.one");
        assert_eq!(label(&names[7]), "answered by other backends");
        assert_eq!(label("nothing, waiting in connect"), "no answer");
        assert_eq!(
            label("answered by no probe server: \"x\""),
            "another error or answer"
        );
        let classes: BTreeSet<String> = names.iter().map(|name| backends.kind(name).class()).collect();
        assert_eq!(classes.len(), COLOURS + 1);
    }
}
