//! What a run ends with where not all that it has made could be undone or written.

use std::process::ExitCode;

/// The run's end. What could not be undone hides no verdict: one that accuses stays exit code 1, an interruption what it is, and
/// why there was no run is said as if nothing else had happened. Only a run in which nothing failed ends with it.
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
