//! A chart in report.html: the lanes that matter, the legend and the marks; further lanes are folded.

use maud::{Markup, html};

use super::{
    super::{
        super::{
            format::Case,
            timeline::{Lane, MarkKind, Timeline},
        },
        detail::Detail,
    },
    chart::{self, Chart, Drawing},
};
use crate::plural::counted;

/// What the page needs once for all charts: the hatching of wrong outcomes.
pub(in super::super) fn definitions() -> Markup {
    html! {
        svg class="unseen" aria-hidden="true" {
            defs { (hatching()) }
        }
    }
}

pub(super) fn hatching() -> Markup {
    html! {
        pattern id="hatching" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
            rect class="hatched" width="6" height="6" {}
            rect class="hatch" width="3" height="6" {}
        }
    }
}

/// The timeline of a case; nothing, if it has none.
pub(in super::super) fn render(case: &Case, detail: Detail) -> Markup {
    let Some(timeline) = &case.timeline else {
        return html! {};
    };
    let axes = axes(case);
    let (first, others) = split(timeline, detail.lanes());
    let others: Vec<&Lane> = match case.fails_the_run() {
        true => others.into_iter().take(detail.more_lanes()).collect(),
        false => Vec::new(),
    };
    let left_out = timeline.lanes.len() + timeline.more_lanes - first.len() - others.len();
    html! {
        figure class="timeline" {
            (drawn(&case.id, &Chart::of(timeline, first, &axes).with_marks(detail.marks())))
            @if !others.is_empty() {
                details class="small" {
                    summary { (counted(others.len(), "more client and destination", "more clients and destinations")) }
                    (drawn(&case.id, &Chart::of(timeline, others, &axes)))
                }
            }
            @if left_out > 0 {
                p class="soft small" {
                    (counted(left_out, "further client and destination is", "further clients and destinations are"))
                    " in the evidence only."
                }
            }
        }
    }
}

/// Names of a case's axes.
pub(super) fn axes(case: &Case) -> Vec<&str> {
    case.axes.iter().map(|axis| axis.name.as_str()).collect()
}

/// The lanes of the first chart, and all others: one axis, if one failed or all are too many.
pub(super) fn split(timeline: &Timeline, most: usize) -> (Vec<&Lane>, Vec<&Lane>) {
    let is_one_axis = |first: &&Lane| first.failure.is_some() || timeline.lanes.len() > most;
    let first = timeline.lanes.first().filter(is_one_axis);
    let is_first = |lane: &&Lane| first.is_none_or(|first| lane.axis() == first.axis());
    let (mut shown, mut others): (Vec<&Lane>, Vec<&Lane>) = timeline.lanes.iter().partition(is_first);
    let mut more = shown.split_off(shown.len().min(most));
    more.append(&mut others);
    (shown, more)
}

fn drawn(id: &str, chart: &Chart<'_>) -> Markup {
    let Drawing { height, body, legend } = chart.draw();
    let (from, to) = chart.range();
    let label = format!("What the clients of {id} saw from {from:.1} to {to:.1} s");
    html! {
        svg class="chart" width="100%" height=(height) role="img" aria-label=(label) { (body) }
        ul class="legend" aria-label="Legend" {
            @for entry in legend {
                li { svg width="16" height="14" aria-hidden="true" { (entry.sample()) } (entry.words) }
            }
        }
        ol class="marks" aria-label="What the case did" {
            @for mark in chart.marks() {
                li class=(if mark.kind == MarkKind::Fault { "fault" } else { "phase" }) {
                    span class="soft" { (format!("{:.1} s", mark.at)) } " " (chart::shortened(&mark.text))
                }
            }
        }
        @if chart.more_marks() > 0 {
            p class="soft small" { (counted(chart.more_marks(), "later event is", "later events are")) " in the evidence only." }
        }
    }
}
