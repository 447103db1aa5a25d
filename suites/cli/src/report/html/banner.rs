//! The verdict of a run: what was tested, how it ended, and which part of the catalogue that decides.

use std::time::Duration;

use maud::{Markup, html};

use super::{
    super::{
        coverage::Coverage,
        format::{Case, Report, Verdict},
    },
    frame::{day, sign},
};
use crate::plural::{counted, seconds};

pub(super) fn render(report: &Report) -> Markup {
    let coverage = Coverage::of(report);
    let class = class(report);
    html! {
        div class={ "banner " (class) } {
            @if let Some(words) = report.no_conformance() {
                p { strong { (words) } ": one axis of each row, a short hold, few probes. What passed here has not passed the suite." }
            }
            h1 { (heading(report)) }
            p { (tested(report)) }
            @if report.interrupted { p { strong { "Interrupted" } ": cases that did not run are not listed." } }
        }
        (counts(report))
        p class="coverage" {
            strong { (coverage.sentence()) } "."
            @if !coverage.untested_features().is_empty() {
                " " span class="inconclusive" {
                    "Declared by the target, and tested by no case here: " (coverage.untested_features().join(", ")) "."
                }
            }
        }
        (not_decided(&coverage))
        (failures(report))
    }
}

fn class(report: &Report) -> &'static str {
    if report.counts.fail > 0 {
        "fail"
    } else if report.counts.pass == 0 || report.failed() {
        "inconclusive"
    } else {
        "pass"
    }
}

fn heading(report: &Report) -> String {
    let counts = &report.counts;
    let ran = counts.pass + counts.fail + counts.inconclusive + counts.exempt;
    let undecided = counted(
        counts.inconclusive,
        "case is inconclusive",
        "cases are inconclusive",
    );
    if counts.fail > 0 {
        format!("✗ {} of {} failed", counts.fail, counted(ran, "case", "cases"))
    } else if ran == 0 {
        "– No case ran".to_owned()
    } else if counts.inconclusive > 0 {
        format!("? Nothing failed; {undecided}")
    } else if counts.exempt > 0 {
        format!(
            "✓ {} passed, {} exempt",
            counted(counts.pass, "case", "cases"),
            counts.exempt
        )
    } else {
        match counts.pass {
            1 => "✓ The case passed".to_owned(),
            pass => format!("✓ All {pass} cases passed"),
        }
    }
}

/// What was tested, where, by which version, when and for how long.
fn tested(report: &Report) -> Markup {
    let cluster = &report.cluster;
    let mut versions: Vec<&str> = Vec::new();
    for version in cluster
        .software
        .agents
        .iter()
        .filter_map(|agent| agent.version.as_deref())
    {
        if !versions.contains(&version) {
            versions.push(version);
        }
    }
    let took = seconds(Duration::try_from_secs_f64(report.seconds).unwrap_or_default());
    html! {
        strong { (cluster.target) }
        @if !versions.is_empty() { " (" (versions.join(", ")) ")" }
        " on " (cluster.provider) ", " (counted(cluster.nodes.len(), "node", "nodes")) ", " (cluster.families.join(" and "))
        @if let Some(kubernetes) = &cluster.software.kubernetes { ", Kubernetes: " (kubernetes) }
        ", kernel " (cluster.kernel) ". Tested by plumbline " (report.plumbline) " on " (day(&report.started)) ", in " (took) "."
    }
}

fn counts(report: &Report) -> Markup {
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
                li class=(if count == 0 { "soft" } else { class }) { b { (count) } " " (words) }
            }
        }
    }
}

/// Claims without a verdict, by the reason.
fn not_decided(coverage: &Coverage) -> Markup {
    let count: usize = coverage.not_decided().values().map(Vec::len).sum();
    if count == 0 {
        return html! {};
    }
    html! {
        details class="small" {
            summary { (counted(count, "claim is", "claims are")) " not decided here" }
            @for (why, claims) in coverage.not_decided() {
                p { strong { (claims.len()) " " (why) } ": " (claims.join(", ")) }
            }
        }
    }
}

/// A line for each case that failed.
fn failures(report: &Report) -> Markup {
    let failed: Vec<&Case> = report.cases.iter().filter(|case| case.fails_the_run()).collect();
    if failed.is_empty() {
        return html! {};
    }
    html! {
        ul class="failures" aria-label="Cases that failed" {
            @for case in failed {
                li {
                    a href={ "#" (case.id) } class=(case.label()) { (sign(case.verdict)) " " (case.id) }
                    @if let Some(explanation) = &case.explanation { ": " (explanation.happened) }
                    @else if case.verdict != Verdict::Fail { ": " (case.why) }
                }
            }
        }
    }
}
