//! Results in the output of `cargo xtask test`: failed tests and totals.

/// More failures are no coincidence.
const MOST_AGAIN: usize = 3;

/// Whether a line shows that all test programs are built, because the first one runs.
pub(crate) fn is_built(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("Running ") || line.starts_with("Starting ")
}

/// The failed tests of several programs.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Again {
    /// Arguments of `cargo test`, one command for each program.
    pub(crate) commands: Vec<Vec<String>>,
    /// Number of these tests.
    pub(crate) tests: usize,
}

/// Failed tests that may run once more alone. `None` if there are too many, or none is named, as after a program was
/// killed or did not build.
pub(crate) fn again(log: &str) -> Option<Again> {
    let mut commands = Vec::new();
    let mut names = Vec::new();
    let (mut tests, mut programs) = (0, 0);
    for line in log.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["test", name, .., "...", "FAILED"] = *words {
            names.push(name.to_owned());
            tests += 1;
        }
        let Some((_, program)) = line
            .strip_prefix("error: ")
            .and_then(|line| line.split_once("failed, to rerun pass `"))
        else {
            continue;
        };
        programs += 1;
        if !names.is_empty() {
            let program = program.split('`').next().unwrap_or_default();
            let command = program.split_whitespace().map(str::to_owned);
            let command = command
                .chain(["--".to_owned(), "--exact".to_owned()])
                .chain(names.drain(..));
            commands.push(command.collect());
        }
    }
    ((1..=MOST_AGAIN).contains(&tests) && commands.len() == programs).then_some(Again { commands, tests })
}

/// The number of tests with each result, in all programs.
#[derive(Default, PartialEq, Eq, Debug)]
pub(crate) struct Totals {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

/// Totals of the first run and the second. cargo test writes one line for each program, nextest one for all.
pub(crate) fn totals(log: &str) -> Totals {
    let mut totals = Totals::default();
    for line in log.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_total = line.starts_with("test result:") || line.contains("Summary [");
        for pair in words.windows(2).filter(|_| is_total) {
            let Ok(count) = pair[0].parse::<usize>() else {
                continue;
            };
            match pair[1].trim_end_matches([',', ';']) {
                "passed" => totals.passed += count,
                "failed" => totals.failed += count,
                "ignored" => totals.skipped += count,
                _ => {}
            }
        }
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "   Compiling lab v0.1.0
     Running unittests src/lib.rs (target/debug/deps/lab-1)
test a::one ... ok
test b::two ... FAILED
test b::three ... FAILED
test result: FAILED. 1 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.00s

error: test failed, to rerun pass `-p lab --lib`
     Running tests/run/main.rs (target/debug/deps/run-1)
test four ... ok
test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
error: 1 target failed:
    `-p lab --lib`
";

    #[test]
    fn a_few_that_failed_run_once_more_by_name() {
        let again = again(LOG).unwrap();
        assert_eq!(again.tests, 2);
        let commands: Vec<String> = again.commands.iter().map(|command| command.join(" ")).collect();
        assert_eq!(commands, ["-p lab --lib -- --exact b::two b::three"]);
    }

    #[test]
    fn what_has_no_name_or_is_no_accident_fails_at_once() {
        let killed = format!("{LOG}error: test failed, to rerun pass `-p cases --test lab`\n");
        assert_eq!(again(&killed), None);
        let many = "test five ... FAILED\n".repeat(2) + LOG;
        assert_eq!(again(&many), None);
        assert_eq!(again("error: could not compile `lab`\n"), None);
        assert_eq!(again("test one ... ok\n"), None);
    }

    #[test]
    fn tests_of_all_programs_are_counted() {
        let (passed, failed, skipped) = (5, 2, 1);
        assert_eq!(
            totals(LOG),
            Totals {
                passed,
                failed,
                skipped
            }
        );
        let nextest = "     Summary [   1.2s] 7 tests run: 6 passed (1 slow), 1 failed, 3 skipped\n";
        let (passed, failed, skipped) = (6, 1, 0);
        assert_eq!(
            totals(nextest),
            Totals {
                passed,
                failed,
                skipped
            }
        );
    }

    #[test]
    fn all_is_built_when_the_first_program_runs() {
        assert!(LOG.lines().position(is_built) == Some(1));
        assert!(is_built("    Starting 12 tests across 3 binaries"));
    }
}
