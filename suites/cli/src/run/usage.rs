//! Resources that a run has used, in a file beside its reports: `cargo xtask bench e2e` shows it.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use harness::{report::CaseReport, time_spent::Spent};
use serde::Serialize;

use super::machine::Processors;

/// Name of the file, in the folder of the reports.
const FILE: &str = "spent.json";

/// Resources that labs have used.
#[derive(Debug, Default)]
pub(super) struct LabsSpent(Mutex<LabTotals>);

#[derive(Clone, Debug, Default, Serialize)]
struct LabTotals {
    /// Number of labs that were made.
    made: usize,
    /// Seconds from the start of each lab until its agents were ready.
    up_seconds: f64,
    /// Seconds of the labs' removal.
    down_seconds: f64,
    /// Processor seconds by program.
    programs: BTreeMap<&'static str, f64>,
}

impl LabsSpent {
    pub(super) fn up(&self, took: Duration) {
        let mut labs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        labs.made += 1;
        labs.up_seconds += took.as_secs_f64();
    }

    pub(super) fn down(&self, took: Duration, programs: BTreeMap<&'static str, f64>) {
        let mut labs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        labs.down_seconds += took.as_secs_f64();
        for (program, seconds) in programs {
            *labs.programs.entry(program).or_default() += seconds;
        }
    }
}

#[derive(Serialize)]
struct File<'a> {
    /// Duration of the run.
    took_seconds: f64,
    processors: usize,
    /// Processor seconds of the machine meanwhile, including programs outside the run.
    busy_seconds: f64,
    idle_seconds: f64,
    labs: LabTotals,
    cases: BTreeMap<&'a str, OfCase<'a>>,
}

#[derive(Serialize)]
struct OfCase<'a> {
    took_seconds: f64,
    #[serde(flatten)]
    spent: &'a Spent,
}

/// Writes the file.
///
/// # Errors
/// The file can't be written.
pub(super) fn write<'a>(
    folder: &Path,
    took: Duration,
    since: Processors,
    labs: &LabsSpent,
    cases: impl Iterator<Item = &'a CaseReport>,
) -> anyhow::Result<()> {
    let [busy_seconds, idle_seconds] = Processors::now().since(since);
    let of_case = |case: &'a CaseReport| {
        let spent = OfCase {
            took_seconds: case.seconds,
            spent: &case.spent,
        };
        (case.id.as_str(), spent)
    };
    let file = File {
        took_seconds: took.as_secs_f64(),
        processors: super::machine::processors(),
        busy_seconds,
        idle_seconds,
        labs: labs.0.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        cases: cases.map(of_case).collect(),
    };
    let path = folder.join(FILE);
    let text = serde_json::to_vec_pretty(&file)?;
    fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))
}
