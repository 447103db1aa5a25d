//! A stored history, judged again.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use oracle::chaos::judge;
use scenarios::chaos::{play::findings, read};

use crate::plural::counted;

/// Judge a stored history again. Exit codes: 0 valid, 1 invalid, 2 the file can't be read
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The history: chaos.json.gz in the evidence of a run
    file: PathBuf,
}

pub(super) fn check(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let file = arguments.file.display();
    let history = read(&arguments.file).with_context(|| format!("{file} is no history of chaos"))?;
    let outside = judge(&history);
    println!(
        "{} of {}, {} that an earlier flow may have decided, {} excused by a fault",
        counted(outside.judged, "attempt that decides", "attempts that decide"),
        history.attempts.len(),
        outside.undecided,
        outside.excused
    );
    for disturbance in &history.disturbances {
        let at = |us: u64| us.saturating_sub(history.began_us) as f64 / 1e6;
        println!(
            "  {:7.1} s to {:.1} s  {}",
            at(disturbance.from_us),
            at(disturbance.until_us),
            disturbance.what
        );
    }
    let found = findings(&history);
    if found.is_empty() {
        println!("valid");
        return Ok(ExitCode::SUCCESS);
    }
    for finding in &found {
        println!("{finding}");
    }
    println!("invalid");
    Ok(ExitCode::from(1))
}
