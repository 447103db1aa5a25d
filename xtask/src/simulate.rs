//! `cargo xtask simulate`: schedules of chaos against the agent's own parts, in simulated time.

use std::process::ExitCode;

use crate::steps;

/// Builds and runs `plumbline-simulate`, optimised: a simulation is all computing.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Options of `plumbline-simulate`; --help shows them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    simulate: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut command = steps::cargo();
    command
        .args(["run", "--release", "--quiet", "--package", "simulation", "--"])
        .args(&arguments.simulate);
    steps::become_("simulate", &mut command)
}
