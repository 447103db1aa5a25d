//! `cargo xtask ci`: everything that a change must pass, without parts that it can't affect.
//!
//! | module | holds |
//! |---|---|
//! | `parts`, `table` | the type of a part; the list of parts |
//! | `tree`, `packages`, `inputs` | files of the work tree or of a commit; files that a part reads, and their digest |
//! | `records`, `decide` | what has passed before; whether a part runs, and why |
//! | `plan`, `lanes` | what runs; concurrent lanes, until all have ended |
//! | `board`, `work` | shared state of lanes; the work of each part |
//! | `suite` | a run of the suite, and what runs again |
//! | `test_programs` | results in the test programs' output |
//! | `shown` | tables |
//!
//! Tests and suites wait for half of their time, so lanes run concurrently:
//!
//! ```text
//! tests ──▶ suite: the suite in labs, then mutants, which need its verdicts (of an earlier run where it is left out), then
//!       │   a real API server and kube-proxy in labs
//!       └─▶ clusters: kind, once mutants have ended
//! set-ups: what a new machine lacks for checks and clusters
//! checks:  object, Miri, lint; verifier and fuzzing after the tests
//!          (both all the while, at the lowest priority)
//! ```

mod board;
mod decide;
mod inputs;
mod lanes;
mod packages;
mod parts;
mod plan;
mod records;
mod shown;
mod suite;
mod table;
mod test_programs;
mod tree;
mod work;

use std::{process::ExitCode, time::Duration};

use self::plan::Run;

/// Variable with the folder that CI keeps between runs.
pub(crate) const CACHE: &str = "PLUMBLINE_CI_CACHE";

/// Runs everything that a change must pass: lint, tests, checks of the eBPF programs, the suite in labs and clusters,
/// mutants. Lint, docs and tests always run. Another part is left out if the same files that it reads, and those that all
/// parts depend on, have passed it before on this machine. Miri and fuzzing, which every night runs, are left out if their
/// own files have, or are as 20 commits ago where nothing is recorded. Omitted parts are listed with the reason.
///
/// `.ci/run` does the same on a new machine, with builds that are made once.
#[derive(clap::Args)]
#[command(
    after_help = "Records of what passed are in passed.txt below PLUMBLINE_CI_CACHE (by default ~/.cache/plumbline), the \
                  output of each part is below target/ci.\n\
                  Exit codes: 0 nothing failed, 1 something failed, 2 could not run, 130 stopped by a signal."
)]
pub(crate) struct Arguments {
    /// Print which parts would run or be left out, and why; run nothing
    #[arg(long)]
    why: bool,
    /// Leave nothing out, whatever has passed before
    #[arg(long)]
    all: bool,
    /// A commit that has passed: a part is also left out if it reads the same files there. Empty: none
    #[arg(long, value_name = "REV")]
    base: Option<String>,
    /// Only these parts; all by default. A named part fails if this machine lacks something that it needs
    #[arg(value_name = "PART", value_parser = names())]
    parts: Vec<String>,
}

/// Parts that can be named. In scripts, a variable may represent one: see `workflows.rs`.
fn names() -> Vec<&'static str> {
    let parts = table::parts();
    parts
        .iter()
        .filter(|part| part.is_judged())
        .map(|part| part.name)
        .collect()
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let parts = table::parts();
    let run = Run::new(&parts)?;
    let plan = run.plan(&parts, arguments)?;
    if arguments.why {
        print!(
            "{}",
            shown::plan(plan.iter().map(|planned| (planned.part, &planned.decision)))
        );
        return Ok(ExitCode::SUCCESS);
    }
    run.carry_out(&plan)
}

/// Whole seconds.
fn seconds(time: Duration) -> String {
    format!("{:.0} s", time.as_secs_f64())
}
