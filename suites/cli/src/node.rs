//! Helpers that faults and cases start on nodes.

use std::process::ExitCode;

use clap::Subcommand;

/// What a fault or a case may start.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Hold the programs of a cgroup by id; commands on stdin, answers on stdout
    HoldPrograms(faults::holder::Arguments),
    /// Count programs, links, maps, pins and rules of the node; as JSON
    Remains(faults::remains::Arguments),
}

pub(crate) async fn node(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::HoldPrograms(arguments) => faults::holder::run(arguments).await.map_err(anyhow::Error::msg),
        Command::Remains(arguments) => {
            let remains = faults::remains::count(arguments).map_err(anyhow::Error::msg)?;
            println!("{}", serde_json::to_string(&remains)?);
            Ok(ExitCode::SUCCESS)
        }
    }
}
