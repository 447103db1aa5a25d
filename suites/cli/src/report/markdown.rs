//! A summary in Markdown for CI services that show it on a run's page: failed cases first, then every case.

use std::{fmt::Write as _, path::Path};

use super::{
    format::{Case, Explanation, Report, Verdict},
    text,
};
use crate::plural::counted;

/// Limit of bytes of a summary: GitHub refuses a larger one
/// (<https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands#step-isolation-and-limits>:
/// 1 MiB for a step). The rest is for the table and the last line.
const MOST: usize = 900_000;

/// The summary. Text from other programs (reasons, addresses in errors) is escaped.
pub(crate) fn render(report: &Report) -> String {
    let cluster = &report.cluster;
    let mut text = format!(
        "### {}{}: {} on {} ({}, {})\n\n{}\n",
        report
            .no_conformance()
            .map_or_else(String::new, |words| format!("{words}: ")),
        if report.failed() {
            "failed"
        } else {
            "nothing failed"
        },
        escaped(&cluster.target),
        escaped(&cluster.provider),
        escaped(&cluster.families.join(" and ")),
        escaped(&cluster.kernel),
        text::counts(report),
    );
    let cluster = &report.cluster;
    let deviations = cluster.deviations_not_applied.iter();
    let deviations = deviations.map(|words| ("no exemption", words.clone()));
    for (name, words) in cluster.software.lines().into_iter().chain(deviations) {
        let _ = write!(text, "\n- {name}: {}", escaped(&words));
    }
    if !cluster.software.is_empty() || !cluster.deviations_not_applied.is_empty() {
        text.push('\n');
    }
    text += "\n| verdict | case | tier | axes | seconds |\n|---|---|---|---|---|\n";
    // A stable sort: within both halves the order of the catalogue stays.
    let mut cases: Vec<&Case> = report.cases.iter().collect();
    cases.sort_by_key(|case| !case.fails_the_run());
    for case in &cases {
        let (passed, all) = case.passed_axes();
        let label = match case.fails_the_run() {
            true => format!("**{}**", case.label()),
            false => case.label().to_owned(),
        };
        let (id, tier) = (escaped(&case.id), escaped(&case.tier));
        let _ = writeln!(
            text,
            "| {label} | {id} | {tier} | {passed}/{all} | {:.1} |",
            case.seconds
        );
    }
    let mut left_out = 0_usize;
    for case in cases {
        if case.label() == Verdict::Pass.name() && case.undecided.is_empty() {
            continue;
        }
        let story = format!(
            "\n{}<details><summary>{} {}</summary>\n\n<pre>{}</pre>\n</details>\n",
            explanation(case),
            escaped(&case.id),
            case.label(),
            escaped(text::story(case, Path::new("")).trim())
        );
        if text.len() + story.len() > MOST {
            left_out += 1;
        } else {
            text += &story;
        }
    }
    if left_out > 0 {
        let _ = writeln!(
            text,
            "\n{} more than fits here: report.html has all.",
            counted(left_out, "case tells", "cases tell")
        );
    }
    text
}

/// What broke, in sentences.
fn explanation(case: &Case) -> String {
    let Some(explanation) = &case.explanation else {
        return String::new();
    };
    let Explanation {
        expected,
        happened,
        event,
        next,
    } = explanation;
    let lines = [
        Some(format!("<b>{}</b>: {}", escaped(&case.id), escaped(happened))),
        event.as_deref().map(escaped),
        Some(format!("Expected: {}", escaped(expected))),
        Some(escaped(next)),
    ];
    let lines: Vec<String> = lines.into_iter().flatten().collect();
    format!("<p>{}</p>\n\n", lines.join("<br>\n"))
}

/// Escapes the text for HTML and for Markdown tables.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '|' => escaped += "&#124;",
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_to_be_shown_is_counted() {
        let mut report = super::super::golden::report();
        for case in &mut report.cases {
            case.warnings = vec!["x".repeat(MOST / 3)];
        }
        let text = render(&report);
        assert!(text.len() < 1 << 20, "{}", text.len());
        assert!(
            text.ends_with("\n5 cases tell more than fits here: report.html has all.\n"),
            "{}",
            &text[text.len() - 100..]
        );
    }
}
