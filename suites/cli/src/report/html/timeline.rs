//! Charts of what the clients saw: a strip for each client and target, with faults as lines through all strips.
//!
//! Each outcome has a colour and a height, to be readable without colours: answers are full, refusals half, silence is
//! low. A strip has no text, so that it can be stretched to any width.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::super::timeline::{Lane, Mark, MarkKind, Span, Timeline};
use crate::plural::counted;

/// Marks closer than this, as a part of the width, are put below each other.
const CLOSE: f64 = 0.045;
/// Rows for marks.
const ROWS: usize = 3;
/// Width of a strip in its own units; the height is 16.
const WIDTH: f64 = 1000.0;

/// All strips of a case.
pub(super) fn render(id: &str, timeline: &Timeline) -> Markup {
    let totals = totals(timeline);
    let classes = classes(&totals);
    let heading = format!("timeline-{id}");
    html! {
        section aria-labelledby=(heading) {
            h4 id=(heading) { "What the clients saw, over " (format!("{:.1} s", timeline.seconds)) }
            ul class="legend" aria-label="Outcomes" {
                @for (outcome, count) in &totals {
                    li { (swatch(classes[outcome])) (outcome) " " span class="soft" { "× " (count) } }
                }
            }
            (ruler(timeline))
            (lines(id, timeline))
            @for lane in &timeline.lanes { (strip(id, lane, timeline, &classes)) }
            @if timeline.more_lanes > 0 {
                p class="soft small" {
                    (counted(timeline.more_lanes, "more client and target is", "more clients and targets are"))
                    " in the evidence"
                }
            }
            ol class="marks" aria-label="What the case did" {
                @for (number, mark) in (1..).zip(&timeline.marks) {
                    li class=(class_of(mark)) {
                        (number) ". " (format!("{:.1} s", mark.at)) " "
                        @if mark.kind == MarkKind::Fault { strong { "fault: " } }
                        (mark.text)
                    }
                }
            }
        }
    }
}

/// The number of attempts with each outcome.
fn totals(timeline: &Timeline) -> BTreeMap<&str, u32> {
    let mut totals = BTreeMap::new();
    for span in timeline.lanes.iter().flat_map(|lane| &lane.spans) {
        for (outcome, count) in &span.outcomes {
            *totals.entry(outcome.as_str()).or_default() += count;
        }
    }
    totals
}

/// The CSS class of each outcome: each backend that answers has one, whatever the port.
fn classes<'a>(totals: &BTreeMap<&'a str, u32>) -> BTreeMap<&'a str, &'static str> {
    let mut left = ["a0", "a1", "a2", "a3", "a4", "a5"].into_iter();
    let mut backends: BTreeMap<&str, &'static str> = BTreeMap::new();
    totals
        .keys()
        .map(|outcome| {
            let refusals = ["ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "EPERM"];
            let class = if outcome.starts_with("answered by no probe server") {
                "other"
            } else if outcome.starts_with("answered by ") {
                let backend = outcome.split('/').next().unwrap_or(outcome);
                backends
                    .entry(backend)
                    .or_insert_with(|| left.next().unwrap_or("a5"))
            } else if outcome.starts_with("nothing") {
                "nothing"
            } else if refusals.iter().any(|errno| outcome.starts_with(errno)) {
                "refused"
            } else {
                "other"
            };
            (*outcome, class)
        })
        .collect()
}

/// Height of the bar of a single outcome, of 16.
fn height(class: &str) -> f64 {
    match class {
        "refused" => 9.0,
        "nothing" => 4.0,
        "other" => 12.0,
        _ => 16.0,
    }
}

fn swatch(class: &str) -> Markup {
    let height = height(class);
    html! {
        svg viewBox="0 0 16 16" aria-hidden="true" {
            rect class=(class) x="0" y=(16.0 - height) width="16" height=(height) {}
        }
    }
}

/// Numbers of the marks, above the strips.
fn ruler(timeline: &Timeline) -> Markup {
    let mut last = [f64::NEG_INFINITY; ROWS];
    let mut places = Vec::new();
    for (number, mark) in (1..).zip(&timeline.marks) {
        let at = (mark.at / timeline.seconds).clamp(0.0, 1.0);
        // Marks without room in any row are put in the last one; the list below has them all.
        let row = last
            .iter()
            .position(|before| at - before > CLOSE)
            .unwrap_or(ROWS - 1);
        last[row] = at;
        places.push((number, mark, (at * 100.0).clamp(1.0, 99.0), row));
    }
    html! {
        div class="lane" aria-hidden="true" {
            span class="soft small" { "0 to " (format!("{:.1} s", timeline.seconds)) }
            div class="ruler" {
                @for (number, mark, percent, row) in places {
                    b class=(class_of(mark)) style=(format!("left:{percent:.2}%;top:{}rem", row as f64 * 1.1)) { (number) }
                }
            }
        }
    }
}

fn class_of(mark: &Mark) -> &'static str {
    match mark.kind {
        MarkKind::Fault => "is-fault",
        MarkKind::Phase => "is-phase",
    }
}

/// Lines through all strips, drawn once and referenced by each strip, since there are many of both.
fn lines(id: &str, timeline: &Timeline) -> Markup {
    html! {
        svg class="unseen" aria-hidden="true" {
            g id=(format!("lines-{id}")) {
                @for mark in &timeline.marks {
                    @let class = if mark.kind == MarkKind::Fault { "fault" } else { "phase" };
                    @let at = x(mark.at, timeline);
                    line class=(class) x1=(at) x2=(at) y1="0" y2="16" {}
                }
            }
        }
    }
}

/// Position of a time in a strip.
fn x(seconds: f64, timeline: &Timeline) -> f64 {
    round((seconds / timeline.seconds).clamp(0.0, 1.0) * WIDTH)
}

fn strip(id: &str, lane: &Lane, timeline: &Timeline, classes: &BTreeMap<&str, &'static str>) -> Markup {
    html! {
        div class="lane" {
            span class="small" { strong { (lane.client) } " → " (lane.target) " " (lane.transport) }
            svg viewBox={ "0 0 " (WIDTH) " 16" } preserveAspectRatio="none" shape-rendering="crispEdges" role="img" aria-label=(spoken(lane)) {
                @for span in &lane.spans { (bars(span, x(span.from, timeline), x(span.to, timeline), classes)) }
                use href=(format!("#lines-{id}")) {}
            }
        }
    }
}

/// One bar, or a stack of bars whose heights are the shares of the outcomes.
fn bars(span: &Span, from: f64, to: f64, classes: &BTreeMap<&str, &'static str>) -> Markup {
    let total: u32 = span.outcomes.values().sum();
    let mut bars = Vec::new();
    let mut bottom = 16.0;
    for (outcome, count) in &span.outcomes {
        let class = classes.get(outcome.as_str()).copied().unwrap_or("other");
        let share = f64::from(*count) / f64::from(total.max(1)) * 16.0;
        let height = if span.outcomes.len() == 1 {
            height(class)
        } else {
            share
        };
        bottom -= height;
        bars.push((class, round(bottom), round(height)));
    }
    let words: Vec<String> = span
        .outcomes
        .iter()
        .map(|(outcome, count)| format!("{count} × {outcome}"))
        .collect();
    html! {
        g {
            title { (format!("{:.1} to {:.1} s: ", span.from, span.to)) (words.join(", ")) }
            @for (class, top, height) in bars {
                rect class=(class) x=(from) y=(top) width=(round(to - from)) height=(height) {}
            }
        }
    }
}

/// Text of the whole strip, for screen readers.
fn spoken(lane: &Lane) -> String {
    let mut totals: BTreeMap<&str, u32> = BTreeMap::new();
    for (outcome, count) in lane.spans.iter().flat_map(|span| &span.outcomes) {
        *totals.entry(outcome).or_default() += count;
    }
    let words: Vec<String> = totals
        .iter()
        .map(|(outcome, count)| format!("{count} × {outcome}"))
        .collect();
    format!(
        "{} to {}, {}: {}",
        lane.client,
        lane.target,
        lane.transport,
        words.join(", ")
    )
}

fn round(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_through_all_strips_is_drawn_once() {
        let mark = Mark {
            at: 1.0,
            kind: MarkKind::Fault,
            text: "f".into(),
        };
        let lane = |number: usize| Lane {
            client: format!("c{number}"),
            target: "t".into(),
            transport: "TCP".into(),
            spans: Vec::new(),
        };
        let timeline = Timeline {
            seconds: 2.0,
            marks: vec![mark; 50],
            lanes: (0..40).map(lane).collect(),
            more_lanes: 0,
        };
        let text = render("c", &timeline).into_string();
        let count = |part: &str| text.matches(part).count();
        assert_eq!(
            (count("<line "), count("<use "), count("id=\"lines-c\"")),
            (50, 40, 1)
        );
    }
}
