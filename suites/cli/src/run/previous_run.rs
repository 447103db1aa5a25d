//! The last run in a folder: its failed cases, and how long its cases took.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, bail};
use cases::claims::{Claim, joint};
use harness::{case::Case, limits::Profile, report::AxisReport, verdict};

use crate::report::{
    files,
    format::{Axis, Report, Verdict},
};

/// The part of the last run that `--rerun-failed` needs.
#[derive(Debug)]
pub(super) struct Last {
    /// Ids of cases.
    pub(super) failed: BTreeSet<String>,
    pub(super) seed: u64,
    /// What claims that are judged over cases of others go on with, by their ids.
    pub(super) joint: BTreeMap<&'static str, Earlier>,
}

/// What a claim that is judged over cases of others goes on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Earlier {
    /// Passed axes of cases that are not run again.
    pub(super) axes: Vec<AxisReport>,
    /// Whether all cases of the row were selected then.
    pub(super) was_whole: bool,
}

impl Last {
    /// Reads the report in a folder.
    ///
    /// # Errors
    /// There is no report, it is of a quick run, or nothing failed in it.
    pub(super) fn read(out: &Path) -> anyhow::Result<Self> {
        let path = out.join(files::YAML);
        let report =
            files::read(&path).context("--rerun-failed needs the report of a run with this --out")?;
        if report.run.profile == Profile::Quick.name() {
            bail!(
                "{} is of a quick run, which left out most axes: name what failed in it, as in `plumbline run CASE`",
                path.display()
            );
        }
        let mut failed: BTreeSet<String> = report
            .cases
            .iter()
            .filter(|case| case.fails_the_run())
            .map(|case| case.id.clone())
            .collect();
        if failed.is_empty() {
            bail!(
                "no case of {} failed or was inconclusive: there is nothing to run again",
                path.display()
            );
        }
        // If such a claim failed, one of its axes or cases has failed, too.
        for claim in joint::all() {
            if failed.remove(claim.id.as_str()) {
                failed.extend(open(claim, &report));
            }
        }
        let earlier = |claim: &'static Claim| Some((claim.id.as_str(), earlier(claim, &report, &failed)?));
        let joint = joint::all().filter_map(earlier).collect();
        let seed = report.run.seed;
        Ok(Self { failed, seed, joint })
    }
}

/// Cases of such a claim that have not yet shown that they need no help.
fn open(claim: &Claim, report: &Report) -> Vec<String> {
    let judged = report.cases.iter().find(|case| claim.id.as_str() == case.id);
    let axes = judged.map_or(&[][..], |case| &case.axes);
    let has_not = |case: &Case| {
        axes.iter()
            .any(|axis| is_of(&axis.name, case.id) && axis.verdict != Verdict::Pass)
    };
    let cases = claim.cases().into_iter().filter(has_not);
    cases.map(|case| case.id.to_owned()).collect()
}

/// `None`, if no case of the row was selected.
fn earlier(claim: &Claim, report: &Report, again: &BTreeSet<String>) -> Option<Earlier> {
    let judged = report.cases.iter().find(|case| claim.id.as_str() == case.id)?;
    let is_again = |name: &str| again.iter().any(|id| is_of(name, id));
    let goes_on = |axis: &&Axis| axis.verdict == Verdict::Pass && !is_again(&axis.name);
    let axes = judged
        .axes
        .iter()
        .filter(goes_on)
        .map(|axis| AxisReport::new(axis.name.clone(), verdict::Verdict::Pass, Vec::new()));
    let cases = claim.cases();
    let selected = |case: &Case| report.cases.iter().any(|one| one.id == case.id);
    Some(Earlier {
        axes: axes.collect(),
        was_whole: judged.verdict != Verdict::Skipped && (report.run.rerun || cases.iter().all(selected)),
    })
}

/// Whether an axis of such a claim belongs to a case.
fn is_of(axis: &str, case: &str) -> bool {
    axis.split_once(": ").is_some_and(|(id, _)| id == case)
}

/// How long the last run took.
#[derive(Debug, Default)]
pub(super) struct Durations {
    /// Duration of each case, by id.
    pub(super) cases: BTreeMap<String, Duration>,
    /// Duration of the run: less than the sum of its cases, as some ran at once.
    pub(super) run: Duration,
}

impl Durations {
    /// Reads the last run in a folder, if it had this profile. The durations only decide the order of cases and an
    /// estimate, so a report that is missing or of another version gives none.
    pub(super) fn read(out: &Path, profile: &str) -> Self {
        let report = files::read(&out.join(files::YAML));
        let Ok(report) = report.map_err(drop).and_then(|report| {
            let is_whole = report.run.profile == profile && !report.interrupted;
            is_whole.then_some(report).ok_or(())
        }) else {
            return Self::default();
        };
        let seconds = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let cases = report
            .cases
            .into_iter()
            .map(|case| (case.id, seconds(case.seconds)));
        Self {
            cases: cases.filter(|(_, took)| !took.is_zero()).collect(),
            run: seconds(report.seconds),
        }
    }

    /// Expected duration of a case: as in the last run, as it was measured, or its limit.
    pub(super) fn expected(&self, case: &Case) -> Duration {
        let last = self.cases.get(case.id).copied();
        last.or_else(|| took(case.id)).unwrap_or(case.longest)
    }
}

/// What a case took when it was measured.
fn took(case: &str) -> Option<Duration> {
    let mut lines = include_str!("took.tsv")
        .lines()
        .filter_map(|line| line.split_once('\t'));
    let (_, seconds) = lines.find(|(id, _)| *id == case)?;
    seconds.parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::golden;

    #[test]
    fn what_was_measured_is_of_cases_and_can_be_read() {
        let lines = include_str!("took.tsv")
            .lines()
            .filter(|line| !line.starts_with('#'));
        let ids: Vec<&str> = lines.map(|line| line.split('\t').next().unwrap()).collect();
        assert!(
            ids.len() > cases::ALL.len() / 2 && ids.is_sorted(),
            "{}",
            ids.len()
        );
        for id in ids {
            let case = cases::find(id).unwrap_or_else(|| panic!("{id} is no case"));
            assert!(took(id).is_some_and(|took| took <= case.longest), "{id}");
        }
    }

    #[test]
    fn a_claim_that_is_judged_over_cases_runs_those_again_that_failed_it_and_keeps_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let mut report = golden::report();
        for is_rerun in [false, true] {
            report.run.rerun = is_rerun;
            std::fs::write(folder.path().join(files::YAML), files::yaml(&report).unwrap()).unwrap();
            let last = Last::read(folder.path()).unwrap();
            assert!(!last.failed.contains("stale-no-reboot"), "it is no case");
            assert!(
                last.failed.contains("stale-sock-legacy-multi") && !last.failed.contains("stale-map-pin")
            );
            let earlier = &last.joint["stale-no-reboot"];
            let kept: Vec<&str> = earlier.axes.iter().map(|axis| axis.name.as_str()).collect();
            assert_eq!(kept, ["stale-map-pin: IPv4, pins as they were"]);
            assert_eq!(
                earlier.was_whole, is_rerun,
                "the first was a run of two of its cases"
            );
        }
    }

    #[test]
    fn a_quick_run_is_no_run_to_go_on_with() {
        let folder = tempfile::tempdir().unwrap();
        let mut report = golden::report();
        report.run.profile = "quick".to_owned();
        std::fs::write(folder.path().join(files::YAML), files::yaml(&report).unwrap()).unwrap();
        let error = Last::read(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("of a quick run") && error.contains("plumbline run CASE"),
            "{error}"
        );
    }

    #[test]
    fn durations_are_those_of_a_run_of_the_same_profile_that_came_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut report = golden::report();
        for (is_interrupted, profile, is_known) in [
            (false, "lab", true),
            (false, "quick", false),
            (true, "lab", false),
        ] {
            report.interrupted = is_interrupted;
            std::fs::write(folder.path().join(files::YAML), files::yaml(&report).unwrap()).unwrap();
            let durations = Durations::read(folder.path(), profile);
            assert_eq!(
                !durations.cases.is_empty(),
                is_known,
                "{is_interrupted} {profile}"
            );
            assert_eq!(!durations.run.is_zero(), is_known);
        }
    }
}
