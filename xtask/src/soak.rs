//! `cargo xtask soak`: what tests try by the thousand, by the million.

use std::process::{Command, ExitCode};

use clap::Subcommand;

use crate::steps;

/// Try by the million what tests try by the thousand.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Random histories through the agent, which must leave in the maps what a fresh agent would have written
    Agent(Agent),
    /// Agents on the real kernel, killed before and after every step of starting and of following changes; the next one
    /// must end in the planned state, and no client be sent astray. Half an hour; needs root
    Restart,
}

#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 every history that was played kept the law, 1 one broke it, 2 could not run."
)]
struct Agent {
    /// How many histories
    #[arg(long, default_value_t = 1_000_000)]
    histories: u64,
    /// What all of them are drawn from; without it, the clock. Printed
    #[arg(long)]
    seed: Option<u64>,
    /// Number of the first one: to go on where a run of the same seed ended
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// How many are played side by side; without it, as many as there are processors
    #[arg(long)]
    jobs: Option<usize>,
    /// Minutes after which no history is begun
    #[arg(long)]
    minutes: Option<u64>,
}

/// Builds what it takes, and runs it.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::Agent(arguments) => agent(arguments),
        What::Restart => restart(),
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
