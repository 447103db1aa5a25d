//! report.html: one file that needs no network and suits phones, dark mode and paper.
//!
//! `timeline.rs`: charts of what the clients saw. `style.css`: the style.
mod timeline;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    format::{Axis, Case, Report, Verdict},
    software::AgentSoftware,
};
use crate::plural::counted;

/// The text of the file.
pub(crate) fn render(report: &Report) -> String {
    let title = format!(
        "plumbline{}: {} on {}",
        report
            .no_conformance()
            .map_or_else(String::new, |words| format!(" ({words})")),
        report.cluster.target,
        report.cluster.provider
    );
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                header {
                    h1 { (title) }
                    @if let Some(words) = report.no_conformance() {
                        p class="inconclusive" {
                            strong { (words) } ": one axis of each row, a short hold, few probes. What passed here has not passed the suite."
                        }
                    }
                    p class="soft" {
                        (report.started) ", " (format!("{:.1} s", report.seconds))
                        @if report.interrupted { ", " strong class="inconclusive" { "interrupted" } }
                    }
                    (summary(report))
                }
                main {
                    (environment(report))
                    (matrix(report))
                    section aria-labelledby="cases" {
                        h2 id="cases" { "Cases" }
                        @for case in &report.cases { (details(case)) }
                    }
                }
                footer class="soft small" {
                    p { "plumbline " (report.plumbline) ", " (report.format) }
                }
            }
        }
    };
    page.into_string()
}

fn summary(report: &Report) -> Markup {
    let counts = &report.counts;
    let all = [
        ("pass", "passed", counts.pass),
        ("fail", "failed", counts.fail),
        ("inconclusive", "inconclusive", counts.inconclusive),
        ("exempt", "exempt", counts.exempt),
        ("skipped", "skipped", counts.skipped),
        ("not-supported", "not supported", counts.not_supported),
    ];
    html! {
        ul class="sum" aria-label="How the cases ended" {
            @for (class, words, count) in all {
                li { b class=(if count == 0 { "soft" } else { class }) { (count) } (words) }
            }
        }
    }
}

fn environment(report: &Report) -> Markup {
    let cluster = &report.cluster;
    let or_none = |all: &[String]| {
        if all.is_empty() {
            "none".to_owned()
        } else {
            all.join(", ")
        }
    };
    let nodes: Vec<String> = cluster
        .nodes
        .iter()
        .map(|(name, addresses)| {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            format!("{name} ({})", addresses.join(", "))
        })
        .collect();
    html! {
        section aria-labelledby="where" {
            h2 id="where" { "Where and how" }
            dl {
                dt { "target" } dd { (cluster.target) }
                dt { "provider" } dd { (cluster.provider) }
                dt { "kernel" } dd { (cluster.kernel) }
                dt { "families" } dd { (or_none(&cluster.families)) }
                dt { "features" } dd { (or_none(&cluster.features)) }
                dt { "nodes" } dd { (nodes.join(", ")) }
                dt { "seed" } dd { (report.run.seed) @if report.run.shuffled { ", cases shuffled" } }
                dt { "limits" } dd { "profile " (report.run.profile) }
                @for axis in &cluster.axes_not_enabled { dt { "not" } dd { (axis) } }
                @for (name, text) in cluster.software.lines() { dt { (name) } dd { (text) } }
                @for words in &cluster.deviations_not_applied { dt { "no exemption" } dd { (words) } }
            }
            (configuration(report))
            details class="small" {
                summary { "All limits" }
                dl { @for (name, value) in &report.limits { dt { (name) } dd { (value) } } }
            }
        }
    }
}

/// How agents were configured.
fn configuration(report: &Report) -> Markup {
    let configured = |agent: &&AgentSoftware| !agent.arguments.is_empty() || !agent.environment.is_empty();
    html! {
        @for agent in report.cluster.software.agents.iter().filter(configured) {
            details class="small" {
                summary { "Configuration of " (agent.name) }
                pre {
                    @for argument in &agent.arguments { (argument) "\n" }
                    @for (name, value) in &agent.environment { (name) "=" (value) "\n" }
                }
            }
        }
    }
}

fn matrix(report: &Report) -> Markup {
    html! {
        section aria-labelledby="matrix" {
            h2 id="matrix" { "Claims and axes" }
            table {
                thead { tr { th scope="col" { "Claim" } th scope="col" { "Verdict" } th scope="col" { "Axes" } } }
                tbody {
                    @for case in &report.cases {
                        @for (claim, text) in &case.claims {
                            tr {
                                th scope="row" {
                                    a href={ "#" (case.id) } { (claim) }
                                    @if claim != &case.id { span class="soft small" { " by " (case.id) } }
                                    p class="soft small" style="font-weight:400" { (text) }
                                }
                                td { (mark_of(case)) }
                                td { (axes(case)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn axes(case: &Case) -> Markup {
    html! {
        @if case.axes.is_empty() { span class="soft small" { "none ran" } }
        ul class="axes" {
            @for axis in &case.axes {
                li class=(axis.verdict.name()) { (sign(axis.verdict)) " " (axis.name) }
            }
        }
    }
}

/// A sign that distinguishes verdicts without colour.
fn sign(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "✓",
        Verdict::Fail => "✗",
        Verdict::Inconclusive => "?",
        Verdict::Skipped | Verdict::NotSupported => "–",
    }
}

fn mark_of(case: &Case) -> Markup {
    html! { span class={ "verdict " (case.label()) } { (sign(case.verdict)) " " (case.label()) } }
}

fn details(case: &Case) -> Markup {
    let (passed, all) = case.passed_axes();
    html! {
        details id=(case.id) open[case.has_details()] {
            summary {
                (mark_of(case)) " " strong { (case.id) } " "
                span class="soft small" {
                    (case.tier) ", " (passed) " of " (counted(all, "axis", "axes")) ", " (format!("{:.1} s", case.seconds))
                }
            }
            @for text in case.claims.values() { p { (text) } }
            @if !case.why.is_empty() { p class=(case.label()) { (case.why) } }
            @if let Some(exempt) = &case.exempt { p class="exempt" { "exempt: " (exempt) } }
            @for warning in &case.warnings { p class="inconclusive" { "warning: " (warning) } }
            @for (number, earlier) in (1..).zip(&case.undecided) {
                p class="inconclusive" { "try " (number) " was inconclusive: " (earlier.why) }
                @if let Some(evidence) = &earlier.evidence { p class="small" { "its evidence: " (link(evidence)) } }
            }
            @for axis in case.axes.iter().filter(|axis| axis.verdict != Verdict::Pass) { (findings(axis)) }
            @if let Some(shown) = &case.timeline { (timeline::render(&case.id, shown)) }
            @if !case.axes_not_enabled.is_empty() {
                h4 { "Axes that did not run" }
                ul class="small" { @for axis in &case.axes_not_enabled { li { (axis) } } }
            }
            @if !case.recorded.is_empty() {
                h4 { "Recorded, not judged" }
                dl class="small" { @for (name, value) in &case.recorded { dt { (name) } dd { (value) } } }
            }
            @if all > 0 || case.evidence.is_some() {
                h4 { "Again" }
                pre { (case.replay) }
            }
            @if let Some(evidence) = &case.evidence { p class="small" { "evidence: " (link(evidence)) } }
        }
    }
}

/// Link to a folder beside the report; a folder name is never taken for an absolute URL.
fn link(folder: &str) -> Markup {
    html! { a href={ "./" (folder) "/" } { code { (folder) } } }
}

fn findings(axis: &Axis) -> Markup {
    html! {
        h4 { span class=(axis.verdict.name()) { (sign(axis.verdict)) " " (axis.verdict.name()) } ": " (axis.name) }
        @if axis.findings.is_empty() { p class="small" { (axis.why) } }
        @for finding in &axis.findings {
            dl class="small" {
                dt { "who" } dd { (finding.subject) }
                dt { "expected" } dd { (finding.expected) }
                dt { "found" } dd { (finding.found) }
            }
            @if !finding.attempts.is_empty() { pre { (finding.attempts.join("\n")) } }
        }
    }
}
