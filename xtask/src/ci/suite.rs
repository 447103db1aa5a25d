//! A run of the suite as a part of CI: cases that failed by chance or were inconclusive run again, and are named.

use std::{env, fs, path::Path};

use anyhow::Context as _;
use serde_json::Value;

use super::{
    board::Outcome,
    parts::Suite,
    work::{RunningPart, outcome_of},
};
use crate::{mutants::outcome, steps};

/// What follows a run that did not pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Again {
    /// Nothing: it failed.
    No,
    /// Cases that did not pass run once more, and have to pass.
    Once,
    /// They run once more, and have to pass twice.
    Twice,
}

impl Again {
    /// The decision after this number of failures, of the reference or of another project's target.
    const fn after(failures: u64, is_reference: bool) -> Self {
        match (failures, is_reference) {
            // Only inconclusive cases.
            (0, _) => Self::Once,
            // The reference may fail a single case by chance.
            (1, true) => Self::Twice,
            (_, true) => Self::No,
            // Chance failures of other targets are named; permanent ones are bugs of this suite or deviations.
            (_, false) => Self::Once,
        }
    }
}

impl RunningPart<'_> {
    /// Runs the suite; inconclusive cases run once more.
    ///
    /// # Errors
    /// A command could not be started, or a report can't be read.
    pub(super) fn suite(&mut self, suite: &Suite) -> anyhow::Result<Outcome> {
        let folder = steps::root().join(suite.out());
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("failed to remove {}, an earlier run's", folder.display()))?;
        }
        let kubernetes = if suite.control_plane {
            Some(self.kubernetes()?)
        } else {
            None
        };
        let mut arguments = suite.arguments(kubernetes.as_deref());
        if self.cargo(&arguments)? {
            return Ok(outcome_of(true));
        }
        let report = folder.join("report.yaml");
        if !report.is_file() {
            return Ok(outcome_of(false)); // The run could not start.
        }
        let failures = failed(&report)?;
        let again = Again::after(failures, suite.target.is_none());
        let tries = match again {
            Again::No => return Ok(outcome_of(false)),
            Again::Once => 2,
            Again::Twice => 3,
        };
        if failures > 0 {
            let name = suite.target.unwrap_or("reference");
            self.board.note(format!(
                "{name}, failed once of {tries} times: {}",
                outcome::shown(&report, &["FAIL "]).join("; ")
            ));
        }
        arguments.push("--rerun-failed".to_owned());
        if again == Again::Twice {
            self.print("=== twice more, what failed or was inconclusive");
            let second = folder.join("rerun/report.yaml");
            let nothing_failed = self.cargo(&arguments)? || (second.is_file() && failed(&second)? == 0);
            if !nothing_failed {
                return Ok(outcome_of(false));
            }
            // The next run overwrites the file.
            fs::copy(&second, folder.join("rerun-1.yaml"))
                .context("failed to keep the second run's report")?;
        } else {
            self.print("=== once more, what failed or was inconclusive");
        }
        Ok(if self.cargo(&arguments)? {
            Outcome::Passed { with_luck: true }
        } else {
            outcome_of(false)
        })
    }

    /// The folder of Kubernetes' own programs.
    fn kubernetes(&self) -> anyhow::Result<String> {
        const NAME: &str = "PLUMBLINE_KUBE_API";
        let own = env::var(NAME).ok();
        let folder = self.found.variable(NAME).map(str::to_owned).or(own);
        folder.with_context(|| format!("expected {NAME} to name the folder of kube-apiserver"))
    }
}

impl Suite {
    /// Folder of the report, below the root of the repository.
    pub(super) fn out(&self) -> String {
        format!("target/{}", self.out)
    }

    /// Arguments for cargo.
    fn arguments(&self, kubernetes: Option<&str>) -> Vec<String> {
        let mut arguments = vec!["xtask", "e2e", "--provider", self.provider];
        if let Some(target) = self.target {
            arguments.extend(["--target", target]);
        }
        let out = self.out();
        arguments.extend(["--", "--out", &out]);
        if let Some(folder) = kubernetes {
            arguments.extend(["--control-plane", folder]);
        }
        if !self.filter.is_empty() {
            arguments.extend(["--filter", self.filter]);
        }
        arguments.into_iter().map(str::to_owned).collect()
    }
}

/// Number of failed cases in a report.
fn failed(report: &Path) -> anyhow::Result<u64> {
    let text = fs::read_to_string(report).with_context(|| format!("failed to read {}", report.display()))?;
    let count = outcome::parsed(&text)?
        .pointer("/counts/fail")
        .and_then(Value::as_u64);
    count.with_context(|| format!("{} does not say how many cases failed", report.display()))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::ci::{parts::Work, table};

    #[test]
    fn what_the_reference_fails_twice_or_in_two_cases_is_a_failure() {
        for (failures, is_reference, expected) in [
            (0, true, Again::Once),
            (1, true, Again::Twice),
            (2, true, Again::No),
            (0, false, Again::Once),
            (9, false, Again::Once),
        ] {
            assert_eq!(
                Again::after(failures, is_reference),
                expected,
                "{failures} {is_reference}"
            );
        }
    }

    #[test]
    fn failures_are_counted_by_the_report() {
        let folder = tempfile::tempdir().unwrap();
        let report = folder.path().join("report.yaml");
        fs::write(&report, "version: 1\ncounts:\n  pass: 3\n  fail: 2\n").unwrap();
        assert_eq!(failed(&report).unwrap(), 2);
        fs::write(&report, "version: 1\n").unwrap();
        assert!(failed(&report).unwrap_err().to_string().contains("does not say"));
    }

    #[test]
    fn what_parts_run_are_commands_that_there_are() {
        for part in table::parts() {
            let line: Vec<String> = match &part.work {
                Work::Cargo(arguments) => arguments.iter().map(|word| (*word).to_owned()).collect(),
                Work::Suite(suite) => suite.arguments(Some("folder")),
                Work::Setup | Work::Tests | Work::Mutants => continue,
            };
            if line[0] == "xtask" {
                crate::Arguments::try_parse_from(&line)
                    .unwrap_or_else(|error| panic!("{}: {error}", part.name));
            }
        }
    }
}
