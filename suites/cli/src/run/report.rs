//! report.json: all of a run, for programs.

use std::{fs, path::Path, time::Duration};

use anyhow::Context as _;
use harness::{limits::Limits, report::CaseReport, verdict::Verdict};
use lab::cluster::Description;
use serde::Serialize;

use super::seconds;
use crate::count::counted;

/// A run. Each case has `id` and `verdict` (pass, fail, not-supported, skipped, inconclusive) at least.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Of this program.
    pub(super) version: &'static str,
    pub(super) cluster: Description,
    pub(super) limits: Limits,
    pub(super) seed: u64,
    pub(super) seconds: f64,
    pub(super) cases: Vec<CaseReport>,
}

impl Report {
    pub(super) fn new(
        cluster: Description,
        limits: Limits,
        seed: u64,
        took: Duration,
        cases: Vec<CaseReport>,
    ) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        Self {
            version,
            cluster,
            limits,
            seed,
            seconds: took.as_secs_f64(),
            cases,
        }
    }

    pub(super) fn failed(&self) -> bool {
        self.cases.iter().any(|case| case.verdict.fails_the_run())
    }

    /// One line: how many of each.
    pub(super) fn counts(&self) -> String {
        let verdicts: Vec<&Verdict> = self.cases.iter().map(|case| &case.verdict).collect();
        counts(&verdicts, Duration::from_secs_f64(self.seconds))
    }

    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let file = folder.join("report.json");
        fs::write(&file, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("failed to write {}", file.display()))
    }
}

fn counts(verdicts: &[&Verdict], took: Duration) -> String {
    let count = |test: fn(&Verdict) -> bool| verdicts.iter().filter(|verdict| test(verdict)).count();
    format!(
        "{} in {}: {} passed, {} failed, {} inconclusive, {} skipped, {} not supported",
        counted(verdicts.len(), "case", "cases"),
        seconds(took),
        count(|verdict| matches!(verdict, Verdict::Pass)),
        count(|verdict| matches!(verdict, Verdict::Fail { .. })),
        count(|verdict| matches!(verdict, Verdict::Inconclusive { .. })),
        count(|verdict| matches!(verdict, Verdict::Skipped { .. })),
        count(|verdict| matches!(verdict, Verdict::NotSupported { .. })),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_one_case_and_several() {
        let took = Duration::from_millis(61_234);
        assert_eq!(
            counts(&[&Verdict::Pass], took),
            "1 case in 61.2 s: 1 passed, 0 failed, 0 inconclusive, 0 skipped, 0 not supported"
        );
        assert!(counts(&[&Verdict::Pass; 2], took).starts_with("2 cases in 61.2 s: 2 passed, "));
    }
}
