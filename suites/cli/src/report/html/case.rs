//! What is known of a case: its timeline, what broke, findings; then everything else, folded.

use maud::{Markup, html};

use super::{
    super::format::{Axis, Case, Finding, Verdict},
    detail::Detail,
    frame::{mark_of, sentence, sign},
    matrix, timeline,
};
use crate::plural::counted;

/// Findings that are shown at once, each of another axis if there are as many.
const SHOWN: usize = 3;
/// Limit of attempts of one finding; report.yaml has more.
const ATTEMPTS: usize = 2;

pub(super) fn render(case: &Case, detail: Detail, is_open: bool) -> Markup {
    let (passed, all) = case.passed_axes();
    html! {
        details class="case" id=(case.id) open[is_open] data-words=(matrix::words(case)) {
            summary {
                (mark_of(case)) " " strong { (case.id) } " "
                span class="soft small" {
                    (case.tier) ", " (passed) " of " (counted(all, "axis", "axes")) " passed, " (format!("{:.1} s", case.seconds))
                }
            }
            @for text in case.claims.values() { p class="claim" { (sentence(text)) } }
            (timeline::render(case, detail))
            (broke(case))
            @if let Some(exempt) = &case.exempt { p class="exempt" { "exempt: " (exempt) } }
            @for warning in &case.warnings { p class="inconclusive" { "warning: " (warning) } }
            @for (number, earlier) in (1..).zip(&case.undecided) {
                p class="inconclusive" { "try " (number) " was inconclusive: " (earlier.why) }
                @if let Some(evidence) = &earlier.evidence { p class="small" { "its evidence: " (link(evidence)) } }
            }
            (findings(case, detail))
            (axes(case, detail))
            @if detail.has_lists() && !case.recorded.is_empty() {
                details class="small" {
                    summary { "Recorded, not judged" }
                    dl { @for (name, value) in &case.recorded { dt { (name) } dd { (value) } } }
                }
            }
            @if all > 0 || case.evidence.is_some() {
                p class="small" { "again: " code { (case.replay) } }
            }
            @if let Some(evidence) = &case.evidence { p class="small" { "evidence: " (link(evidence)) } }
        }
    }
}

/// What broke, in sentences, if the report has them; the reason otherwise.
fn broke(case: &Case) -> Markup {
    match &case.explanation {
        Some(explanation) => html! {
            dl class="broke" {
                dt { "expected" } dd { (explanation.expected) }
                dt { "happened" } dd class=(case.label()) { strong { (explanation.happened) } }
                @if let Some(event) = &explanation.event { dt { "before" } dd { (event) } }
                dt { "next" } dd { (explanation.next) }
            }
        },
        None if case.why.is_empty() => html! {},
        None => html! { p class={ "broke " (case.label()) } { (case.why) } },
    }
}

/// The first findings of each axis come first: further ones of the same axis mostly repeat them.
fn ordered(case: &Case) -> Vec<(&Axis, &Finding)> {
    let mut found: Vec<(usize, &Axis, &Finding)> = Vec::new();
    for axis in &case.axes {
        let numbered = axis.findings.iter().enumerate();
        found.extend(numbered.map(|(number, finding)| (number, axis, finding)));
    }
    found.sort_by_key(|(number, axis, _)| (axis.verdict != Verdict::Fail, *number));
    found
        .into_iter()
        .map(|(_, axis, finding)| (axis, finding))
        .collect()
}

fn findings(case: &Case, detail: Detail) -> Markup {
    let all = ordered(case);
    let (shown, more) = all.split_at(all.len().min(SHOWN));
    let (folded, left_out) = more.split_at(more.len().min(detail.more_findings()));
    html! {
        @for (axis, finding) in shown { (one(axis, finding, detail)) }
        @if !folded.is_empty() {
            details class="small" {
                summary { (counted(more.len(), "more finding", "more findings")) }
                @for (axis, finding) in folded { (one(axis, finding, detail)) }
                @if !left_out.is_empty() { p class="soft" { (left_out.len()) " more are in report.yaml." } }
            }
        }
    }
}

fn one(axis: &Axis, finding: &Finding, detail: Detail) -> Markup {
    let attempts: Vec<&str> = finding
        .attempts
        .iter()
        .take(ATTEMPTS)
        .map(String::as_str)
        .collect();
    // The subject of a probe begins with its axis; others do not name it.
    let is_named = finding.subject.starts_with(&format!("[{}]", axis.name));
    html! {
        div class="finding" {
            p { span class=(axis.verdict.name()) { (sign(axis.verdict)) } " "
                @if !is_named { (axis.name) ": " }
                strong { (finding.subject) } }
            dl class="small" {
                dt { "expected" } dd { (finding.expected) }
                dt { "found" } dd { (finding.found) }
            }
            @if detail.has_lists() && !attempts.is_empty() {
                details class="small" { summary { "first attempts" } pre { (attempts.join("\n")) } }
            }
        }
    }
}

/// Axes without a finding that did not pass, all axes, and those that did not run.
fn axes(case: &Case, detail: Detail) -> Markup {
    let unexplained = case.axes.iter();
    let unexplained = unexplained.filter(|axis| axis.verdict != Verdict::Pass && axis.findings.is_empty());
    html! {
        @for axis in unexplained {
            p class="small" { span class=(axis.verdict.name()) { (sign(axis.verdict)) " " (axis.name) } ": " (axis.why) }
        }
        @if detail.has_lists() && !case.axes.is_empty() {
            details class="small" {
                summary { (counted(case.axes.len(), "axis", "axes")) }
                ul class="names" {
                    @for axis in &case.axes { li class=(axis.verdict.name()) { (sign(axis.verdict)) " " (axis.name) } }
                }
            }
        }
        @if !case.axes_not_enabled.is_empty() {
            p class="small" { "Axes that did not run:" }
            ul class="small" { @for axis in &case.axes_not_enabled { li { (axis) } } }
        }
    }
}

/// Link to a folder beside the report; a folder name is never taken for an absolute URL.
fn link(folder: &str) -> Markup {
    html! { a href={ "./" (folder) "/" } { code { (folder) } } }
}
