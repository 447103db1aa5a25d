//! Makes a report from the results of a run's cases.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, SystemTime},
};

use cases::claims;
use cluster::Description;
use harness::{
    case::axes_not_enabled,
    limits::Limits,
    report::{self, AxisReport, CaseReport},
    verdict,
};
use jiff::Timestamp;
use oracle::finding::{self, describe};

use super::{
    explanation,
    format::{Axis, Case, Cluster, Counts, FORMAT, Finding, Report, Run, Undecided, Verdict},
    timeline,
};

/// The data of a run for its report.
pub(crate) struct RunData<'a> {
    pub(crate) description: &'a Description,
    pub(crate) features: &'a BTreeSet<String>,
    /// Deviations that exempt nothing.
    pub(crate) not_applied: Vec<String>,
    pub(crate) limits: &'a Limits,
    pub(crate) run: Run,
    pub(crate) started: SystemTime,
    pub(crate) took: Duration,
    pub(crate) interrupted: bool,
    /// The folder of the run.
    pub(crate) out: &'a Path,
    /// Reports of the cases, each with the reason if it is exempt.
    pub(crate) cases: Vec<(CaseReport, Option<String>)>,
}

/// The report of a run. Histories are read from the cases' evidence.
pub(crate) fn report(made: RunData<'_>) -> Report {
    let of_every_case = axes_not_enabled(made.description);
    let cases: Vec<Case> = made
        .cases
        .into_iter()
        .map(|(report, exempt)| case(report, exempt, made.out, &of_every_case))
        .collect();
    Report {
        format: FORMAT.to_owned(),
        plumbline: env!("CARGO_PKG_VERSION").to_owned(),
        started: time(Timestamp::try_from(made.started).ok()),
        seconds: rounded(made.took.as_secs_f64()),
        interrupted: made.interrupted,
        cluster: cluster(made.description, made.features, made.not_applied),
        run: made.run,
        limits: made
            .limits
            .values()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        counts: Counts::of(&cases),
        cases,
    }
}

/// Sets when the run of a report began, and how long it took.
pub(crate) fn set_time(report: &mut Report, started: SystemTime, took: Duration) {
    report.started = time(Timestamp::try_from(started).ok());
    report.seconds = rounded(took.as_secs_f64());
}

fn cluster(description: &Description, features: &BTreeSet<String>, not_applied: Vec<String>) -> Cluster {
    let node = |node: &cluster::Node| (node.name.clone(), node.addresses.clone());
    Cluster {
        provider: description.provider.clone(),
        target: description.target.clone(),
        kernel: description.kernel.clone(),
        families: description.families().iter().map(ToString::to_string).collect(),
        nodes: description.nodes.iter().map(node).collect(),
        capabilities: description
            .capabilities
            .iter()
            .map(|capability| format!("{capability:?}").to_lowercase())
            .collect(),
        features: features.iter().cloned().collect(),
        axes_not_enabled: axes_not_enabled(description),
        deviations_not_applied: not_applied,
        software: (&description.software).into(),
    }
}

fn case(report: CaseReport, exempt: Option<String>, out: &Path, of_every_case: &[String]) -> Case {
    let text = |id: &String| {
        (
            id.clone(),
            claims::find(id).map_or_else(String::new, |claim| claim.sentence.clone()),
        )
    };
    let started = i64::try_from(report.started_us)
        .ok()
        .and_then(|us| Timestamp::from_microsecond(us).ok());
    let disruptive = cases::find(&report.id).is_some_and(|case| case.disruptive);
    let folder = report.evidence.as_deref().map(|path| within(out, path));
    let explained = explanation::explanation(&report, folder.as_deref());
    let mut warnings = report.warnings;
    let explained = explained.unwrap_or_else(|error| {
        let history = folder.as_deref().unwrap_or_default();
        warnings.push(format!(
            "no explanation, as the history in {history} can't be read: {error}"
        ));
        None
    });
    let mut shown = None;
    if let Some(evidence) = &report.evidence
        && (disruptive || report.verdict.fails_the_run() || timeline::has_attempts(evidence))
    {
        match timeline_of(evidence, &report.axes) {
            Ok(found) => shown = found,
            Err(why) => warnings.push(why),
        }
    }
    let claims: BTreeMap<String, String> = report.claims.iter().map(text).collect();
    Case {
        id: report.id,
        area: report.area,
        claims,
        tier: report.tier,
        verdict: verdict(&report.verdict),
        why: report.verdict.why().to_owned(),
        explanation: explained,
        exempt,
        started: time(started),
        seconds: rounded(report.seconds),
        replay: report.replay,
        axes: report.axes.into_iter().map(axis).collect(),
        axes_not_enabled: own_axes(report.axes_not_enabled, of_every_case),
        recorded: report.recorded,
        warnings,
        evidence: folder,
        timeline: shown,
        undecided: report
            .undecided
            .into_iter()
            .map(|earlier| undecided(earlier, out))
            .collect(),
    }
}

fn own_axes(mut axes: Vec<String>, of_every_case: &[String]) -> Vec<String> {
    axes.retain(|axis| !of_every_case.contains(axis));
    axes
}

fn undecided(earlier: report::Undecided, out: &Path) -> Undecided {
    Undecided {
        why: earlier.why,
        seconds: rounded(earlier.seconds),
        evidence: earlier.evidence.as_deref().map(|path| within(out, path)),
    }
}

/// The path relative to the report's folder, so that the folder can be moved.
fn within(out: &Path, path: &Path) -> String {
    path.strip_prefix(out)
        .unwrap_or(path)
        .to_string_lossy()
        .into_owned()
}

/// `None`, if the case has no history because its process ended early.
fn timeline_of(evidence: &Path, axes: &[AxisReport]) -> Result<Option<timeline::Timeline>, String> {
    match timeline::read(evidence, axes) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        other => {
            other.map_err(|error| format!("no timeline, as {} can't be read: {error}", evidence.display()))
        }
    }
}

fn axis(report: AxisReport) -> Axis {
    Axis {
        verdict: verdict(&report.verdict),
        why: report.verdict.why().to_owned(),
        name: report.name,
        findings: report.findings.into_iter().map(finding).collect(),
    }
}

fn finding(found: finding::Finding) -> Finding {
    Finding {
        attempts: found.first.iter().map(describe).collect(),
        subject: found.subject,
        expected: found.expected,
        found: found.found,
    }
}

fn verdict(verdict: &verdict::Verdict) -> Verdict {
    match verdict {
        verdict::Verdict::Pass => Verdict::Pass,
        verdict::Verdict::Fail { .. } => Verdict::Fail,
        verdict::Verdict::NotSupported { .. } => Verdict::NotSupported,
        verdict::Verdict::Skipped { .. } => Verdict::Skipped,
        verdict::Verdict::Inconclusive { .. } => Verdict::Inconclusive,
    }
}

/// The time to the millisecond.
fn time(at: Option<Timestamp>) -> String {
    let milliseconds = at.unwrap_or_default().as_millisecond();
    Timestamp::from_millisecond(milliseconds)
        .unwrap_or_default()
        .to_string()
}

/// Rounds to milliseconds, for readability.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_names_the_axes_that_it_left_out_and_not_those_of_every_case() {
        let [every, own] = ["IPv6: none", "10 shared: why"].map(str::to_owned);
        assert_eq!(own_axes(vec![every.clone(), own.clone()], &[every]), [own]);
    }
}
