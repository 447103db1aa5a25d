//! `cargo xtask soak`: runs by the million what tests run by the thousand, and the suite by the dozen.

mod suite;

use std::process::{Command, ExitCode};

use clap::Subcommand;

use crate::steps;

/// Run by the million what tests run by the thousand, and the suite by the dozen.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Random histories through the agent, which must leave the same maps as a fresh agent
    Agent(Agent),
    /// Agents on the real kernel, killed before and after every step of starting and of following changes; the next one
    /// must end in the planned state without misdirecting clients. Half an hour; needs root
    Restart,
    /// The suite many times, shuffled, beside other work: fails if a case fails or is inconclusive, and says which limits came
    /// nearest
    E2e(suite::Arguments),
}

#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 every history that was played kept the law, 1 one broke it, 2 could not run."
)]
struct Agent {
    /// Number of histories
    #[arg(long, default_value_t = 1_000_000)]
    histories: u64,
    /// Seed of all histories; printed. The default is from the clock
    #[arg(long)]
    seed: Option<u64>,
    /// Number of the first history, to continue a run of the same seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Number of concurrent histories; the default is the number of processors
    #[arg(long)]
    jobs: Option<usize>,
    /// Minutes after which no history is started
    #[arg(long)]
    minutes: Option<u64>,
}

/// Builds and runs the programs.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::Agent(arguments) => agent(arguments),
        What::Restart => restart(),
        What::E2e(arguments) => suite::run(arguments),
    }
}

fn restart() -> anyhow::Result<ExitCode> {
    let mut command = steps::cargo();
    command.args(["test", "--package", "reference-agent", "--test", "process"]);
    crate::test::with_root(&mut command)?;
    command.args(["--", "--ignored", "--nocapture", "killed_at_every_step"]);
    Ok(if steps::run("soak", &mut command)? {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn agent(agent: &Agent) -> anyhow::Result<ExitCode> {
    let program = steps::optimised_example("reference-agent", "soak")?;
    let mut command = Command::new(program);
    let always = [("--histories", agent.histories), ("--first", agent.first)];
    let given = [
        ("--seed", agent.seed),
        ("--jobs", agent.jobs.map(|jobs| jobs as u64)),
        ("--minutes", agent.minutes),
    ];
    let given = given.into_iter().filter_map(|(name, value)| Some((name, value?)));
    for (name, value) in always.into_iter().chain(given) {
        command.arg(name).arg(value.to_string());
    }
    command.current_dir(steps::root());
    steps::become_("soak", &mut command)
}
