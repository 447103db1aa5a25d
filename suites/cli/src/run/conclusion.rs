//! The end of a run that could not undo or write everything.

use std::process::ExitCode;

/// The end of a run. An error of the cleanup hides no verdict: a failed run keeps exit code 1, an interruption stays
/// one, and an error that prevented the run is reported first. Only a run in which nothing failed ends with the error
/// of the cleanup.
pub(super) fn concluded(
    done: anyhow::Result<ExitCode>,
    undone: anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    match (done, undone) {
        (Ok(code), Err(left)) if code == ExitCode::SUCCESS => Err(left),
        (done, Err(left)) => {
            eprintln!("plumbline: {left:#}");
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
