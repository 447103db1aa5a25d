//! Results of a run's cases, from its report.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Context as _;
use serde_json::Value;

use crate::steps;

/// Result of a case.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    /// As in the report; or `fail (ready-means-served)`, which is no kill, if only the watch of every run failed.
    pub(super) verdict: String,
    /// How long it ran.
    pub(super) took: Duration,
}

/// By the case's id.
pub(super) type Outcomes = BTreeMap<String, Outcome>;

/// Limit of YAML nodes, as in `plumbline report`.
const NODES: usize = 1_200_000;

/// The case that is watched in every run, and the prefix of its axes.
const WATCHED: &str = "ready-means-served";

/// The outcomes in a report.
pub(super) fn outcomes(report: &Path) -> anyhow::Result<Outcomes> {
    let text = fs::read_to_string(report).with_context(|| format!("there is no {}", report.display()))?;
    let report = parsed(&text)?;
    of_cases(&report)
}

/// Parses a report of `plumbline run`.
pub(crate) fn parsed(text: &str) -> anyhow::Result<Value> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_nodes: NODES, max_events: 2 * NODES },
    };
    serde_saphyr::from_str_with_options(text, options).context("report.yaml is no YAML")
}

/// The outcomes in several reports of one agent.
pub(super) fn joined(reports: &[PathBuf]) -> anyhow::Result<Outcomes> {
    let each: Vec<_> = reports
        .iter()
        .map(|report| outcomes(report))
        .collect::<Result<_, _>>()?;
    Ok(join(each))
}

/// A second result never hides a failure, but decides an inconclusive case. Only two passes outvote one failure.
pub(super) fn join(each: Vec<Outcomes>) -> Outcomes {
    let mut all: BTreeMap<String, Vec<Outcome>> = BTreeMap::new();
    for (case, outcome) in each.into_iter().flatten() {
        all.entry(case).or_default().push(outcome);
    }
    let decided = |results: Vec<Outcome>| {
        let failures = results.iter().filter(|result| has_failed(result)).count();
        let passes = results.iter().filter(|result| result.verdict == "pass").count();
        let outvoted = passes > failures;
        let rank = |result: &Outcome| match result.verdict.as_str() {
            "inconclusive" => 0,
            _ if has_failed(result) && outvoted => 0,
            _ if has_failed(result) => 2,
            _ => 1,
        };
        results.into_iter().max_by_key(rank)
    };
    let each = all.into_iter();
    each.filter_map(|(case, results)| Some((case, decided(results)?)))
        .collect()
}

/// The lines of `plumbline report` with these beginnings; none, if it can't run.
pub(crate) fn shown(report: &Path, beginnings: &[&str]) -> Vec<String> {
    /// Limit of characters: enough to recognize a failure.
    const LONGEST: usize = 400;
    let said = || -> anyhow::Result<String> {
        let mut command = Command::new(steps::programs()?.join("plumbline"));
        let output = command.arg("report").arg(report).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let said = said().unwrap_or_default();
    let lines = said
        .lines()
        .filter(|line| beginnings.iter().any(|beginning| line.starts_with(beginning)));
    lines.map(|line| line.chars().take(LONGEST).collect()).collect()
}

fn has_failed(outcome: &Outcome) -> bool {
    outcome.verdict.starts_with("fail")
}

/// Without cases whose claim the target is known not to keep: they decide nothing.
fn of_cases(report: &Value) -> anyhow::Result<Outcomes> {
    let cases = report["cases"].as_array().context("report.yaml names no cases")?;
    cases
        .iter()
        .filter(|case| case["exempt"].is_null())
        .map(|case| {
            let text = |key: &str| {
                case[key]
                    .as_str()
                    .map(str::to_owned)
                    .with_context(|| format!("a case without {key}"))
            };
            let seconds = case["seconds"].as_f64().unwrap_or_default();
            let verdict = if is_of_the_watch_alone(case) {
                format!("fail ({WATCHED})")
            } else {
                text("verdict")?
            };
            let outcome = Outcome {
                verdict,
                took: Duration::try_from_secs_f64(seconds).unwrap_or_default(),
            };
            Ok((text("id")?, outcome))
        })
        .collect()
}

/// Whether only the watch of every run failed: that is no kill by a case about something else.
fn is_of_the_watch_alone(case: &Value) -> bool {
    let axes = case["axes"].as_array().into_iter().flatten();
    let mut failed = axes.filter(|axis| axis["verdict"] == "fail").peekable();
    let is_watched = |axis: &Value| axis["name"].as_str().unwrap_or_default().starts_with(WATCHED);
    case["id"] != WATCHED && failed.peek().is_some() && failed.all(is_watched)
}

#[cfg(test)]
mod tests {
    use super::{super::tests::outcomes, *};

    #[test]
    fn a_second_result_decides_what_was_open_and_hides_no_failure() {
        let first = outcomes(&[("a", "inconclusive"), ("b", "fail"), ("c", "pass"), ("d", "pass")]);
        let second = outcomes(&[("a", "pass"), ("b", "pass"), ("c", "inconclusive"), ("d", "fail")]);
        let expected = outcomes(&[("a", "pass"), ("b", "fail"), ("c", "pass"), ("d", "fail")]);
        assert_eq!(join(vec![first.clone(), second.clone()]), expected);
        let third = outcomes(&[("a", "fail"), ("b", "pass"), ("c", "fail"), ("d", "inconclusive")]);
        let expected = outcomes(&[("a", "fail"), ("b", "pass"), ("c", "fail"), ("d", "fail")]);
        assert_eq!(join(vec![first, second, third]), expected);
    }

    #[test]
    fn a_case_that_its_target_is_exempt_from_decides_nothing() {
        let report = serde_json::json!({ "cases": [
            { "id": "a", "verdict": "pass", "seconds": 0.0 },
            { "id": "b", "verdict": "fail", "seconds": 1.0, "exempt": "known" },
        ] });
        assert_eq!(of_cases(&report).unwrap(), outcomes(&[("a", "pass")]));
    }

    #[test]
    fn what_is_watched_through_every_run_kills_for_its_own_case_alone() {
        let (own, watched) = ("IPv4", "ready-means-served, node1");
        for (id, failed, verdict) in [
            ("a", &[watched][..], "fail (ready-means-served)"),
            ("a", &[own, watched], "fail"),
            ("a", &[], "fail"),
            (WATCHED, &[watched], "fail"),
        ] {
            let axes = failed
                .iter()
                .map(|name| serde_json::json!({ "name": name, "verdict": "fail" }));
            let axes: Vec<Value> = axes.collect();
            let case = serde_json::json!({ "id": id, "verdict": "fail", "seconds": 0.0, "axes": axes });
            let found = of_cases(&serde_json::json!({ "cases": [case] })).unwrap();
            assert_eq!(found, outcomes(&[(id, verdict)]), "{failed:?}");
        }
    }
}
