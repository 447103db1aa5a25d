//! The end of a run: what is printed then, and its exit code if not everything could be undone or written.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;

use crate::{
    interruption::INTERRUPTED,
    quick,
    report::{files, format::Report, text},
    terminal::{self, OUTLINE, Verbosity, painted},
};

/// Writes the reports of a run to its folder, prints its result, and returns its exit code.
///
/// # Errors
/// Nothing failed, and something could not be written.
pub(crate) fn finish(report: &Report, out: &Path, is_interrupted: bool) -> anyhow::Result<ExitCode> {
    let written = files::write(report, out);
    let paths: &[PathBuf] = written.as_ref().map_or(&[], |paths| paths);
    let printed = print(report, out, paths);
    let written = written.context("the verdicts above stand, but not all reports could be written");
    let code = if is_interrupted {
        ExitCode::from(INTERRUPTED)
    } else {
        ExitCode::from(u8::from(report.failed()))
    };
    concluded(Ok(code), written.and(printed))
}

/// Prints the result of a run, and with more than `-q` where the written reports are.
fn print(report: &Report, out: &Path, written: &[PathBuf]) -> anyhow::Result<()> {
    let shown = shown(report, out, written, terminal::verbosity(), terminal::width());
    Ok(terminal::print(&shown)?)
}

pub(super) fn shown(
    report: &Report,
    out: &Path,
    written: &[PathBuf],
    verbosity: Verbosity,
    columns: usize,
) -> String {
    let table = text::table(report, out, verbosity, columns);
    if verbosity == Verbosity::Quiet {
        return table;
    }
    let before = quick::marked(&report.run.profile, "\n");
    format!("{before}{table}{}", reports(report, written))
}

/// A line for each report.
fn reports(report: &Report, written: &[PathBuf]) -> String {
    let line = |path: &PathBuf| format!("{}\n", painted(OUTLINE, terminal::path(path)));
    let lines: String = written.iter().map(line).collect();
    quick::marked(&report.run.profile, &lines)
}

/// The end of a run. An error of the cleanup hides no verdict: a failed run keeps exit code 1, an interruption stays
/// one, and an error that prevented the run is reported first. Only a run in which nothing failed ends with the error
/// of the cleanup.
pub(crate) fn concluded(
    done: anyhow::Result<ExitCode>,
    undone: anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    match (done, undone) {
        (Ok(code), Err(left)) if code == ExitCode::SUCCESS => Err(left),
        (done, Err(left)) => {
            terminal::message(&format!("plumbline: {left:#}"));
            done
        }
        (done, Ok(())) => done,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn what_is_left_ends_only_a_run_in_which_nothing_failed() {
        let (failed, interrupted) = (ExitCode::FAILURE, ExitCode::from(130));
        let left = || Err(anyhow!("left"));
        for code in [ExitCode::SUCCESS, failed, interrupted] {
            assert_eq!(concluded(Ok(code), Ok(())).unwrap(), code);
        }
        for code in [failed, interrupted] {
            assert_eq!(concluded(Ok(code), left()).unwrap(), code);
        }
        let words = |end: anyhow::Result<ExitCode>| end.unwrap_err().to_string();
        assert_eq!(words(concluded(Ok(ExitCode::SUCCESS), left())), "left");
        assert_eq!(words(concluded(Err(anyhow!("no run")), left())), "no run");
        assert_eq!(words(concluded(Err(anyhow!("no run")), Ok(()))), "no run");
    }
}
