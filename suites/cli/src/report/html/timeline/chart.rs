//! The drawing. Horizontal positions are parts of the width, so it fits a phone as well as a screen.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use maud::{Markup, PreEscaped, html};

use super::{
    super::super::timeline::{Lane, Mark, MarkKind, Timeline},
    cells::{Backends, HEIGHT, Kind, Run, UNITS, runs, wrong},
};

/// Percent of the width for names of clients; the rest is time.
const NAMES: f64 = 24.0;
/// Marks closer than this, as a part of the time, are put below each other.
const CLOSE: f64 = 0.065;
/// Rows of marks; more are put into the last one.
const MARK_ROWS: usize = 3;
/// Height of a row of marks.
const MARK_ROW: u32 = 19;
/// Height of a line of text above strips.
const HEADING: u32 = 17;
/// Height of a strip and the space below it.
const LANE: u32 = HEIGHT + 5;
/// Height of the scale.
const SCALE: u32 = 20;
/// Limit of marks; the history has all.
const MARKS: usize = 16;
/// Limit of outcomes in a tooltip.
const OUTCOMES: usize = 3;
/// Limit of characters of a mark's text.
const TEXT: usize = 180;
/// Prefix of the mark of a fault's end.
const OVER: &str = "over: ";

/// A chart of some lanes of a timeline.
pub(super) struct Chart<'a> {
    lanes: Vec<&'a Lane>,
    /// The first and the last second.
    range: (f64, f64),
    marks: Vec<&'a Mark>,
    more_marks: usize,
    backends: Backends,
}

/// A chart as SVG.
pub(super) struct Drawing {
    pub(super) height: u32,
    /// The elements within the `svg` element.
    pub(super) body: Markup,
    /// Everything that needs an explanation.
    pub(super) legend: Vec<Entry>,
}

/// A line of the legend.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The class of what it explains.
    class: String,
    /// The height of what it explains, of [`HEIGHT`].
    height: u32,
    pub(super) words: String,
}

impl Entry {
    fn new(class: &str, words: &str) -> Self {
        Self {
            class: class.to_owned(),
            height: HEIGHT,
            words: words.to_owned(),
        }
    }

    /// A sample, 16 wide.
    pub(super) fn sample(&self) -> Markup {
        html! {
            rect class="strip" width="16" height=(HEIGHT) {}
            rect class=(self.class) y=(HEIGHT - self.height) width="16" height=(self.height) {}
        }
    }
}

impl<'a> Chart<'a> {
    /// A chart of these lanes, over the time in which they have attempts. `axes` are the names of the case's axes: marks
    /// of other axes than those of the lanes are left out.
    pub(super) fn of(timeline: &'a Timeline, lanes: Vec<&'a Lane>, axes: &[&str]) -> Self {
        let range = range(timeline, &lanes);
        let shown: BTreeSet<&str> = lanes.iter().filter_map(|lane| lane.axis()).collect();
        let is_of_another = |mark: &Mark| {
            axes.iter()
                .any(|axis| !shown.contains(axis) && begins_with(&mark.text, axis))
        };
        let mut marks: Vec<&Mark> = timeline
            .marks
            .iter()
            .filter(|mark| mark.at >= range.0 && mark.at <= range.1 && !is_of_another(mark))
            .collect();
        let more_marks = marks.len().saturating_sub(MARKS);
        marks.truncate(MARKS);
        let backends = Backends::of(&lanes);
        Self {
            lanes,
            range,
            marks,
            more_marks,
            backends,
        }
    }

    /// The same with at most so many marks: the first ones.
    pub(super) fn with_marks(mut self, most: usize) -> Self {
        self.more_marks += self.marks.len().saturating_sub(most);
        self.marks.truncate(most);
        self
    }

    /// The marks, numbered from 1 in this order.
    pub(super) fn marks(&self) -> &[&'a Mark] {
        &self.marks
    }

    /// The number of marks that are not shown.
    pub(super) fn more_marks(&self) -> usize {
        self.more_marks
    }

    /// The first and the last second.
    pub(super) fn range(&self) -> (f64, f64) {
        self.range
    }

    pub(super) fn draw(&self) -> Drawing {
        let (mark_rows, marks) = self.placed_marks();
        let top = mark_rows * MARK_ROW + 4;
        let mut y = top;
        let mut kinds = BTreeSet::new();
        let mut rows = Vec::new();
        let mut before: Option<&Lane> = None;
        for lane in &self.lanes {
            let axis = lane.axis();
            if axis.is_some() && before.is_none_or(|before| before.axis() != axis) {
                rows.push(heading(y, "axis", axis.unwrap_or_default()));
                y += HEADING;
            }
            if before
                .is_none_or(|before| (&before.target, &before.transport) != (&lane.target, &lane.transport))
            {
                let words = format!("{} {}", lane.destination(), lane.transport);
                rows.push(heading(y, "destination", &words));
                y += HEADING;
            }
            let runs = runs(lane, self.range, &self.backends);
            kinds.extend(runs.iter().flat_map(|run| run.cell.bars()).map(|(kind, ..)| kind));
            rows.push(strip(lane, &runs, y));
            y += LANE;
            before = Some(lane);
        }
        let judged = self.judged();
        let faults = self.faults();
        let tall = y - top;
        let body = html! {
            @for (from, to) in &faults { (self.band("fault-time", *from, *to, top, tall, "a fault lasts")) }
            @if let Some((from, to)) = judged { (self.band("judged", from, to, top, tall, "judged")) }
            @for row in rows { (row) }
            @for mark in &self.marks {
                @let x = percent(self.x(mark.at));
                line class=(class_of(mark)) x1=(x) x2=(x) y1=(top - 4) y2=(y) {}
            }
            @for (number, (mark, row)) in (1..).zip(&marks) {
                @let (x, middle) = (percent(self.x(mark.at).clamp(NAMES, 98.5)), row * MARK_ROW + 9);
                g class={ "mark " (class_of(mark)) } {
                    title { (number) ". " (seconds(mark.at)) ": " (shortened(&mark.text)) }
                    circle cx=(x) cy=(middle) r="8.5" {}
                    text x=(x) y=(middle + 4) text-anchor="middle" { (number) }
                }
            }
            (self.scale(y))
        };
        let mut legend = Vec::new();
        if self
            .lanes
            .iter()
            .any(|lane| lane.spans.iter().any(|span| span.wrong > 0))
        {
            legend.push(Entry::new("wrong", "wrong: outside what the claim permits"));
        }
        for kind in kinds {
            let entry = Entry {
                class: kind.class(),
                height: kind.height(),
                words: self.backends.label(kind),
            };
            if !legend.contains(&entry) {
                legend.push(entry);
            }
        }
        if judged.is_some() {
            legend.push(Entry::new("judged", "the time that is judged"));
        }
        if !faults.is_empty() {
            legend.push(Entry::new("fault-time", "a fault lasts"));
        }
        Drawing {
            height: y + SCALE,
            body,
            legend,
        }
    }

    /// Percent of the width.
    fn x(&self, at: f64) -> f64 {
        let (from, to) = self.range;
        NAMES + (100.0 - NAMES) * ((at - from) / (to - from)).clamp(0.0, 1.0)
    }

    /// The number of rows, and the row of each mark.
    fn placed_marks(&self) -> (u32, Vec<(&'a Mark, u32)>) {
        let mut last = [f64::NEG_INFINITY; MARK_ROWS];
        let mut rows = 0;
        let mut placed = Vec::new();
        for mark in &self.marks {
            let at = (mark.at - self.range.0) / (self.range.1 - self.range.0);
            let row = last.iter().position(|before| at - before > CLOSE);
            let row = row.unwrap_or(MARK_ROWS - 1);
            last[row] = at;
            rows = rows.max(row as u32 + 1);
            placed.push((*mark, row as u32));
        }
        (rows, placed)
    }

    /// The time in which lanes that failed were judged.
    fn judged(&self) -> Option<(f64, f64)> {
        let failures = self.lanes.iter().filter_map(|lane| lane.failure.as_ref());
        failures
            .map(|failure| (failure.from, failure.to))
            .reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    /// Times between a fault's beginning and its end, where both are marked.
    fn faults(&self) -> Vec<(f64, f64)> {
        let faults = || self.marks.iter().filter(|mark| mark.kind == MarkKind::Fault);
        let end = |begun: &Mark| {
            let ends = faults()
                .find(|mark| mark.text.strip_prefix(OVER) == Some(&begun.text) && mark.at >= begun.at)?;
            Some((begun.at, ends.at))
        };
        faults().filter_map(|mark| end(mark)).collect()
    }

    fn band(&self, class: &str, from: f64, to: f64, top: u32, tall: u32, words: &str) -> Markup {
        let (left, right) = (self.x(from), self.x(to));
        html! {
            rect class=(class) x=(percent(left)) width=(percent((right - left).max(0.2))) y=(top - 4) height=(tall + 4) {
                title { (words) ", " (seconds(from)) " to " (seconds(to)) }
            }
        }
    }

    fn scale(&self, y: u32) -> Markup {
        let (from, to) = self.range;
        let steps = [
            0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0,
        ];
        let step = steps
            .into_iter()
            .find(|step| (to - from) / step <= 6.0)
            .unwrap_or(3600.0);
        let first = (from / step).ceil() as u32;
        let ticks = (first..).map(|number| f64::from(number) * step);
        let ticks = ticks.take_while(|at| *at <= to);
        html! {
            g class="scale" {
                line x1=(percent(NAMES)) x2="100%" y1=(y) y2=(y) {}
                @for at in ticks {
                    @let x = self.x(at);
                    // Text at the edges stays within them.
                    @let anchor = if x > 95.0 { "end" } else if x < NAMES + 2.0 { "start" } else { "middle" };
                    line x1=(percent(x)) x2=(percent(x)) y1=(y) y2=(y + 4) {}
                    text x=(percent(x)) y=(y + 15) text-anchor=(anchor) {
                        (format!("{} s", (at * 10.0).round() / 10.0))
                    }
                }
            }
        }
    }
}

/// The time in which the lanes have attempts, with a little before and after; all of the case, if that is not much more.
fn range(timeline: &Timeline, lanes: &[&Lane]) -> (f64, f64) {
    let all = (0.0, timeline.seconds.max(0.001));
    let spans = || lanes.iter().flat_map(|lane| &lane.spans);
    let from = spans().map(|span| span.from).fold(f64::INFINITY, f64::min);
    let to = spans().map(|span| span.to).fold(f64::NEG_INFINITY, f64::max);
    if from >= to || to - from > all.1 * 0.8 {
        return all;
    }
    let space = (to - from) * 0.04;
    ((from - space).max(0.0), (to + space).min(all.1))
}

/// The beginning of a long text: marks may list whatever a fault has found.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Whether a mark is one of the axis: such marks are named `axis: what`.
fn begins_with(text: &str, axis: &str) -> bool {
    text.strip_prefix(axis).is_some_and(|rest| rest.starts_with(": "))
}

fn class_of(mark: &Mark) -> &'static str {
    match mark.kind {
        MarkKind::Fault => "fault",
        MarkKind::Phase => "phase",
    }
}

fn heading(y: u32, class: &str, words: &str) -> Markup {
    html! { text class=(class) x="0" y=(y + 12) { (words) } }
}

/// A client's name and its strip. Bars are paths in units, stretched to the width; marks of wrong outcomes are not, since
/// that would stretch their hatching.
fn strip(lane: &Lane, runs: &[Run<'_>], y: u32) -> Markup {
    let mut paths: Vec<(Kind, String)> = Vec::new();
    for run in runs {
        for (kind, top, height) in run.cell.bars() {
            let at = paths
                .iter()
                .position(|(known, _)| *known == kind)
                .unwrap_or_else(|| {
                    paths.push((kind, String::new()));
                    paths.len() - 1
                });
            let wide = run.to - run.from;
            let _ = write!(paths[at].1, "M{} {top}h{wide}v{height}h-{wide}z", run.from);
        }
    }
    let wrong = wrong(runs);
    let wrong = wrong.iter().filter_map(|run| Some((run, run.cell.wrong()?)));
    html! {
        svg x="0" y=(y) width=(percent(NAMES)) height=(LANE) {
            title { (spoken(lane)) }
            text class=(if lane.failure.is_some() { "client failed" } else { "client" }) x="2" y="11" {
                @if lane.failure.is_some() { "✗ " }
                (lane.client)
            }
        }
        rect class="strip" x=(percent(NAMES)) y=(y) width=(percent(100.0 - NAMES)) height=(HEIGHT) {}
        svg x=(percent(NAMES)) y=(y) width=(percent(100.0 - NAMES)) height=(HEIGHT)
            viewBox=(format!("0 0 {UNITS} {HEIGHT}")) preserveAspectRatio="none" {
            @for (kind, path) in paths { path class=(kind.class()) d=(path) {} }
        }
        @for (run, height) in wrong {
            rect class="wrong" x=(percent(of_unit(run.from))) width=(percent(of_unit(run.to) - of_unit(run.from)))
                y=(y + HEIGHT - height) height=(height) {
                title { (told(lane, run)) }
            }
        }
    }
}

/// Percent of the width.
fn of_unit(unit: u32) -> f64 {
    NAMES + (100.0 - NAMES) * f64::from(unit) / f64::from(UNITS)
}

fn percent(number: f64) -> PreEscaped<String> {
    PreEscaped(format!("{}%", (number * 100.0).round() / 100.0))
}

fn seconds(at: f64) -> String {
    format!("{at:.1} s")
}

/// The wrong outcomes of a run.
fn told(lane: &Lane, run: &Run<'_>) -> String {
    let (from, to) = run.seconds;
    let all: u32 = run.outcomes.values().sum();
    let expected = lane
        .failure
        .as_ref()
        .map_or("", |failure| failure.expected.as_str());
    format!(
        "{from:.1} to {to:.1} s: {} of {all} wrong. {}. Expected {expected}",
        run.wrong,
        listed(
            run.outcomes
                .iter()
                .map(|(outcome, count)| (*outcome, *count))
                .collect()
        )
    )
}

/// What a client saw in all.
fn spoken(lane: &Lane) -> String {
    let mut outcomes: BTreeMap<&str, u32> = BTreeMap::new();
    for (outcome, count) in lane.spans.iter().flat_map(|span| &span.outcomes) {
        *outcomes.entry(outcome).or_default() += count;
    }
    let outcomes = listed(outcomes.into_iter().collect());
    format!(
        "{} to {} {}: {outcomes}",
        lane.client,
        lane.destination(),
        lane.transport
    )
}

/// The most frequent outcomes, with their numbers.
fn listed(mut outcomes: Vec<(&str, u32)>) -> String {
    outcomes.sort_by_key(|(_, count)| Reverse(*count));
    let more = outcomes.len().saturating_sub(OUTCOMES);
    let first = outcomes.iter().take(OUTCOMES);
    let mut words: Vec<String> = first
        .map(|(outcome, count)| format!("{count} × {outcome}"))
        .collect();
    if more > 0 {
        words.push(format!("{more} more outcomes"));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::super::timeline::{Failure, Span},
        *,
    };

    fn lane(axis: &str, client: &str, from: f64, to: f64) -> Lane {
        Lane {
            client: client.into(),
            target: format!("[{axis}] shop (10.0.0.1:80)"),
            transport: "TCP".into(),
            spans: vec![Span {
                from,
                to,
                outcomes: [("answered by a.ns/TCP/80".to_owned(), 9)].into(),
                wrong: 0,
            }],
            failure: None,
        }
    }

    fn mark(at: f64, kind: MarkKind, text: &str) -> Mark {
        Mark {
            at,
            kind,
            text: text.into(),
        }
    }

    fn timeline(marks: Vec<Mark>, lanes: Vec<Lane>) -> Timeline {
        Timeline {
            seconds: 100.0,
            marks,
            lanes,
            more_lanes: 0,
        }
    }

    #[test]
    fn the_time_is_that_of_the_lanes_and_marks_of_other_axes_are_left_out() {
        let marks = vec![
            mark(1.0, MarkKind::Phase, "one: control"),
            mark(41.0, MarkKind::Phase, "two: control"),
            mark(42.0, MarkKind::Phase, "one: heal"),
            mark(43.0, MarkKind::Fault, "the agent is killed"),
        ];
        let timeline = timeline(
            marks,
            vec![lane("two", "pod", 40.0, 60.0), lane("one", "pod", 0.0, 20.0)],
        );
        let chart = Chart::of(&timeline, vec![&timeline.lanes[0]], &["one", "two"]);
        assert_eq!(chart.range(), (39.2, 60.8));
        let texts: Vec<&str> = chart.marks().iter().map(|mark| mark.text.as_str()).collect();
        assert_eq!(texts, ["two: control", "the agent is killed"]);
        let all = Chart::of(&timeline, timeline.lanes.iter().collect(), &["one", "two"]);
        assert_eq!((all.range(), all.marks().len()), ((0.0, 60.0 + 60.0 * 0.04), 4));
    }

    #[test]
    fn a_failure_shades_the_judged_time_and_a_fault_the_time_until_it_is_over() {
        let marks = vec![
            mark(10.0, MarkKind::Fault, "the API server is stopped"),
            mark(30.0, MarkKind::Fault, "over: the API server is stopped"),
            mark(50.0, MarkKind::Fault, "never ended"),
        ];
        let mut failed = lane("x", "pod", 0.0, 100.0);
        failed.failure = Some(Failure {
            from: 20.0,
            to: 80.0,
            expected: "every probe served".into(),
            found: "3 refused".into(),
        });
        failed.spans[0].wrong = 3;
        let timeline = timeline(marks, vec![failed]);
        let chart = Chart::of(&timeline, timeline.lanes.iter().collect(), &[]);
        assert_eq!(
            (chart.judged(), chart.faults()),
            (Some((20.0, 80.0)), vec![(10.0, 30.0)])
        );
        let drawing = chart.draw();
        let body = drawing.body.into_string();
        assert!(
            body.contains(r#"<rect class="judged" x="39.2%" width="45.6%""#),
            "{body}"
        );
        assert!(
            body.contains(r#"<rect class="fault-time" x="31.6%" width="15.2%""#),
            "{body}"
        );
        assert!(body.contains(
            "0.0 to 100.0 s: 3 of 9 wrong. 9 × answered by a.ns/TCP/80. Expected every probe served"
        ));
        assert!(body.contains("✗ pod"), "{body}");
        let classes: Vec<&str> = drawing.legend.iter().map(|entry| entry.class.as_str()).collect();
        assert_eq!(classes, ["wrong", "a0", "judged", "fault-time"]);
    }

    #[test]
    fn clients_of_one_destination_are_a_group_with_one_heading() {
        let lanes = vec![
            lane("x", "one", 0.0, 9.0),
            lane("x", "two", 0.0, 9.0),
            lane("y", "one", 0.0, 9.0),
        ];
        let timeline = timeline(Vec::new(), lanes);
        let body = Chart::of(&timeline, timeline.lanes.iter().collect(), &[])
            .draw()
            .body
            .into_string();
        let count = |part: &str| body.matches(part).count();
        assert_eq!(
            (
                count("class=\"axis\""),
                count("class=\"destination\""),
                count("class=\"strip\"")
            ),
            (2, 2, 3)
        );
    }
}
