//! Lanes: the parts of a lane run in turn, concurrently with other lanes, until all have ended or a signal arrives.

use std::{collections::BTreeSet, fs, process::ExitCode, sync::Arc, thread, time::Instant};

use anyhow::Context as _;
use nix::sys::signal::{SigSet, Signal};

use super::{
    board::{Board, Finished, Found, Outcome},
    parts::{BUILT, Inputs, Lane, Part, Work},
    plan::{Planned, Run},
    shown, test_programs,
    work::{self, RunningPart},
};
use crate::{
    job::{self, Jobs},
    steps,
};

/// Default reason of a part that did not finish.
const STOPPED: &str = "stopped by a signal";

/// The end of a part's output, for readers who have no files, or only the end of CI's output.
fn last_lines(part: &str, written: &str) -> String {
    /// Limit of lines: enough for a few failures of a suite.
    const LINES: usize = 60;
    /// Limit of characters: enough for a sentence with addresses.
    const LONGEST: usize = 400;
    let lines: Vec<&str> = written.lines().collect();
    let mut shown = format!("\nthe end of what {part} wrote:\n");
    for line in lines.iter().skip(lines.len().saturating_sub(LINES)) {
        shown.extend(line.chars().take(LONGEST));
        shown.push('\n');
    }
    shown
}

impl Run {
    /// Runs the plan.
    ///
    /// # Errors
    /// Files of CI can't be written or read.
    pub(super) fn carry_out(&self, plan: &[Planned<'_>]) -> anyhow::Result<ExitCode> {
        let begin = Instant::now();
        let output = steps::root().join(work::OUTPUT);
        fs::create_dir_all(&output).with_context(|| format!("failed to make {}", output.display()))?;
        // Signals are blocked before any thread starts, so that none handles them.
        let mut signals = SigSet::empty();
        signals.extend([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
        signals.thread_block().context("failed to block signals")?;
        let jobs = Arc::new(Jobs::default());
        let stopping = Arc::clone(&jobs);
        thread::spawn(move || stop_at(signals, &stopping));
        let board = Arc::new(Board::default());
        if !plan
            .iter()
            .any(|planned| matches!(planned.part.work, Work::Tests))
        {
            board.reach(BUILT);
        }
        thread::scope(|scope| {
            for lane in Lane::ALL {
                let of_lane: Vec<&Planned<'_>> =
                    plan.iter().filter(|planned| planned.part.lane == lane).collect();
                let (board, jobs) = (&board, &*jobs);
                scope.spawn(move || {
                    for planned in of_lane {
                        let finished = self.one(planned, plan, board, jobs);
                        print(planned.part, &finished);
                        self.finish(planned, finished, board);
                    }
                });
            }
        });
        let ended: Vec<(&Part, Finished)> = plan
            .iter()
            .filter_map(|planned| Some((planned.part, board.finished(planned.part.name)?)))
            .collect();
        print!("{}", shown::ended(&ended, begin.elapsed()));
        for note in board.notes() {
            println!("note: {note}");
        }
        let failed: Vec<&str> = ended
            .iter()
            .filter(|(_, finished)| finished.outcome.is_failure())
            .map(|(part, _)| part.name)
            .collect();
        if jobs.are_stopped() {
            eprintln!("error: {STOPPED}");
            return Ok(ExitCode::from(130));
        }
        if !failed.is_empty() {
            for (part, finished) in &ended {
                if matches!(finished.outcome, Outcome::Failed(_)) {
                    // A part that could not begin has no output.
                    let written = work::log(part.name).unwrap_or_default();
                    print!("{}", last_lines(part.name, &written));
                }
            }
            eprintln!(
                "error: failed: {}; {}/NAME.log says why",
                failed.join(", "),
                work::OUTPUT
            );
            return Ok(ExitCode::FAILURE);
        }
        if ended.iter().any(|(part, _)| matches!(part.work, Work::Tests)) {
            println!("{}", totals()?);
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Waits for the parts before it, and runs the part to its end.
    fn one(&self, planned: &Planned<'_>, plan: &[Planned<'_>], board: &Arc<Board>, jobs: &Jobs) -> Finished {
        let Planned {
            part,
            decision,
            by_name,
        } = planned;
        if !decision.runs {
            return Finished::without_a_run(Outcome::LeftOut(decision.why.clone()));
        }
        let awaited = |name: &str| name == BUILT || plan.iter().any(|planned| planned.part.name == name);
        for name in part.after.iter().filter(|name| awaited(name)) {
            if board.wait_for(name).is_some_and(|outcome| outcome.is_failure()) {
                return Finished::without_a_run(Outcome::NotRun(format!("{name} failed")));
            }
        }
        let mut found = Found::default();
        let setups: BTreeSet<&str> = part.needs.iter().map(|need| need.from).collect();
        for setup in setups {
            let failed = board.wait_for(setup).is_some_and(|outcome| outcome.is_failure());
            if failed && part.needs.iter().any(|need| need.strict && need.from == setup) {
                return Finished::without_a_run(Outcome::NotRun(format!("{setup} failed")));
            }
            found.join(board.found(setup));
        }
        if jobs.are_stopped() {
            return Finished::without_a_run(Outcome::NotRun(STOPPED.to_owned()));
        }
        for need in part.needs.iter().filter(|need| !found.has(need.thing)) {
            let lacking = format!("{} is not here", need.thing);
            if need.strict {
                // A part that was requested by name is never left out for that.
                return Finished::without_a_run(match by_name {
                    true => Outcome::Failed(lacking),
                    false => Outcome::Lacking(lacking),
                });
            }
            board.note(format!(
                "{}: what uses {} is left out, it is not here",
                part.name, need.thing
            ));
        }
        job::print(part.lane.name(), &format!("=== {}: {}", part.name, decision.why));
        let doing = self
            .baseline(plan)
            .and_then(|baseline| RunningPart::new(part, jobs, board, found, &self.cache, baseline));
        let mut doing = match doing {
            Ok(doing) => doing,
            Err(error) => return Finished::without_a_run(Outcome::Failed(format!("{error:#}"))),
        };
        let outcome = match doing.work() {
            Ok(Outcome::Failed(_)) | Err(_) if jobs.are_stopped() => Outcome::NotRun(STOPPED.to_owned()),
            Ok(outcome) => outcome,
            Err(error) => Outcome::Failed(format!("{error:#}")),
        };
        Finished {
            outcome,
            wall: doing.wall,
            processor: doing.processor,
        }
    }

    /// Records a part that counts, and lets others continue.
    pub(super) fn finish(&self, planned: &Planned<'_>, finished: Finished, board: &Board) {
        let part = planned.part;
        let passed = match finished.outcome {
            Outcome::Passed { with_luck: false } => Some(true),
            Outcome::Failed(_) => Some(false),
            _ => None,
        };
        if let Some(passed) = passed
            && matches!(part.inputs, Inputs::Of { .. })
            && let Err(error) = self.record(part, passed)
        {
            board.note(format!(
                "{}: there is no record of how it ended: {error:#}",
                part.name
            ));
        }
        // Tests that did not run have no build to wait for.
        if matches!(part.work, Work::Tests) {
            board.reach(BUILT);
        }
        board.finish(part.name, finished);
    }
}

/// Prints how a part ended, as a line of its lane.
fn print(part: &Part, finished: &Finished) {
    if let Outcome::Failed(why) = &finished.outcome {
        job::print(part.lane.name(), &format!("error: {}: {why}", part.name));
    }
    job::print(
        part.lane.name(),
        &format!("=== {}: {}", part.name, shown::one(finished)),
    );
}

/// The first signal ends all running jobs in order, a second one kills the rest.
fn stop_at(signals: SigSet, jobs: &Jobs) {
    let mut how = Signal::SIGTERM;
    while signals.wait().is_ok() {
        eprintln!(
            "  a signal: what runs is ended{}",
            if how == Signal::SIGTERM {
                "; once more: killed"
            } else {
                ""
            }
        );
        jobs.stop(how);
        how = Signal::SIGKILL;
    }
}

/// One line for all test programs. Tests that failed first and passed alone count as passed.
fn totals() -> anyhow::Result<String> {
    let log = work::log("test")?;
    let totals = test_programs::totals(&log);
    let later = test_programs::again(&log).map_or(0, |again| again.tests);
    Ok(format!(
        "{} passed, {} failed, {} skipped",
        totals.passed,
        totals.failed.saturating_sub(later),
        totals.skipped
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ci::{decide::Decision, plan::tests::run_in, table, tree::tests::repository};

    /// The outcome of a part with this plan, after these others have ended.
    fn becomes(name: &str, ended: &[(&'static str, Outcome)], runs: bool, by_name: bool) -> Outcome {
        let folder = repository();
        let parts = table::parts();
        let run = run_in(folder.path(), &parts);
        let plan: Vec<Planned<'_>> = parts
            .iter()
            .map(|part| Planned {
                part,
                decision: Decision {
                    runs,
                    why: "why".to_owned(),
                },
                by_name,
            })
            .collect();
        let board = Arc::new(Board::default());
        for (name, outcome) in ended {
            board.finish(name, Finished::without_a_run(outcome.clone()));
        }
        board.reach(BUILT);
        let planned = plan.iter().find(|planned| planned.part.name == name).unwrap();
        run.one(planned, &plan, &board, &Jobs::default()).outcome
    }

    #[test]
    fn the_end_of_what_a_part_has_written_is_shown() {
        let written: String = (0..100).map(|line| format!("{line}\n")).collect();
        let shown = last_lines("e2e", &(written + &"x".repeat(1000)));
        assert!(
            shown.contains("e2e wrote:\n41\n") && shown.contains("\n99\n"),
            "{shown}"
        );
        assert_eq!(shown.lines().last().map(str::len), Some(400));
    }

    #[test]
    fn what_needs_not_run_is_left_out() {
        assert_eq!(
            becomes("miri", &[], false, false),
            Outcome::LeftOut("why".to_owned())
        );
    }

    #[test]
    fn a_part_does_not_begin_after_one_that_failed() {
        for outcome in [Outcome::Failed(String::new()), Outcome::NotRun(String::new())] {
            let expected = Outcome::NotRun("test failed".to_owned());
            assert_eq!(becomes("e2e", &[("test", outcome)], true, false), expected);
        }
        let ended = [("nightly", Outcome::Failed(String::new()))];
        assert_eq!(
            becomes("miri", &ended, true, false),
            Outcome::NotRun("nightly failed".to_owned())
        );
    }

    #[test]
    fn a_machine_without_what_a_part_needs_leaves_it_out_unless_it_was_named() {
        let ended = [("nightly", Outcome::Passed { with_luck: false })];
        let lacking = || "miri is not here".to_owned();
        assert_eq!(becomes("miri", &ended, true, false), Outcome::Lacking(lacking()));
        assert_eq!(becomes("miri", &ended, true, true), Outcome::Failed(lacking()));
    }
}
