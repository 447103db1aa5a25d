//! `cargo xtask chaos`: seeded faults against the reference agent, or another implementation.

use std::process::ExitCode;

use crate::{e2e, steps};

/// Builds as the user, then runs `plumbline chaos` as root.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask chaos                            # a random seed, for a minute
  cargo xtask chaos run --seed 7 --for 2m
  cargo xtask chaos sweep --seeds 1..21
  cargo xtask chaos --help                     # this; `plumbline chaos --help` has all commands
Exit codes: 0 valid, 1 invalid or unknown, 2 could not run.")]
pub(crate) struct Arguments {
    /// Command and options of `plumbline chaos` [default: run]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    chaos: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    e2e::build(&e2e::PROGRAMS)?;
    let program = steps::programs()?.join("plumbline");
    let mut command = steps::as_root(&program, "making labs")?;
    command.arg("chaos").current_dir(steps::root());
    if arguments.chaos.is_empty() {
        command.arg("run");
    }
    command.args(&arguments.chaos);
    steps::become_("chaos", &mut command)
}
