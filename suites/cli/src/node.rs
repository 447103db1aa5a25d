//! Helpers that faults start on nodes.

use std::process::ExitCode;

use clap::Subcommand;

/// What a fault may start.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Hold the programs of a cgroup by id; commands on stdin, answers on stdout
    HoldPrograms(faults::holder::Arguments),
}

pub(crate) async fn node(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::HoldPrograms(arguments) => faults::holder::run(arguments).await.map_err(anyhow::Error::msg),
    }
}
