//! `plumbline chaos`: seeded writes and faults, and a verdict on what clients saw meanwhile.
//!
//! - `run.rs`: seeds and schedules, played as cases of a run. `job/`: seeds in pods of any cluster. `shrink.rs`: the fewest actions that still show what broke.
//! - `check.rs`: a stored history, judged again. `coverage.rs`: what histories have covered.
mod check;
mod coverage;
mod job;
mod run;
mod shrink;

use std::process::ExitCode;

const HELP: &str = "\
A seed stands for a schedule: Services and EndpointSlices that change, and faults of the API, of agents and of nodes that come \
and go. Clients in pods, on nodes and outside dial every frontend all the while. The API's order of writes says which backends \
an answer may come from, within the catalogue's limits; what a fault excuses is stated (`chaos faults`). In the end all is \
healed, and every frontend must be as the API says, on every node.

  plumbline chaos run                    a random seed, for a minute, in a lab
  plumbline chaos run --seed 7           a seed; --target, --provider as in `run`
  plumbline chaos sweep --seeds 1..21    20 seeds, side by side where the machine lets
  plumbline chaos sweep --seeds 1..201 --job --kubeconfig FILE
                                         200 seeds in pods of any cluster, each in a lab of its own
  plumbline chaos replay FILE            a schedule again
  plumbline chaos shrink FILE            the fewest actions that still show what broke
  plumbline chaos check FILE             a stored history, judged again
  plumbline chaos coverage FILE...       which faults met which frontends, over many histories

Verdicts are those of `plumbline run`: pass (valid), fail (invalid), inconclusive (unknown).
Files in the evidence of a seed: schedule.json, chaos.json.gz (the history that was judged), history.jsonl.gz, timeline.yaml.";

/// Seeded faults under load, judged from what clients saw
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Play the schedule of a seed
    Run(Box<run::RunArguments>),
    /// Play the schedules of several seeds
    Sweep(Box<run::SweepArguments>),
    /// Play schedules from files
    Replay(Box<run::ReplayArguments>),
    /// Find the fewest actions of a schedule that still show what broke
    Shrink(shrink::Arguments),
    /// Judge a stored history again
    Check(check::Arguments),
    /// Show which faults met which frontends, over many histories
    Coverage(coverage::Arguments),
    /// Print a schedule as text, and play nothing
    Show(run::ShowArguments),
    /// List the faults, and what each excuses
    Faults,
    /// Play the seed of this pod's index, and write what it has shown to the log (started by `sweep --job`)
    #[command(hide = true)]
    PlayIndex(Box<run::SweepArguments>),
}

pub(crate) async fn chaos(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.command {
        Command::Run(arguments) => run::seed(*arguments).await,
        Command::Sweep(arguments) => run::seeds(*arguments).await,
        Command::Replay(arguments) => run::files(*arguments).await,
        Command::Shrink(arguments) => shrink::shrink(arguments).await,
        Command::Check(arguments) => check::check(&arguments),
        Command::Coverage(arguments) => coverage::coverage(&arguments),
        Command::Show(arguments) => run::show(&arguments),
        Command::Faults => {
            run::faults();
            Ok(ExitCode::SUCCESS)
        }
        Command::PlayIndex(arguments) => job::play(*arguments).await,
    }
}
