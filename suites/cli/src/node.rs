//! Helpers that faults and cases start on nodes.

use std::process::ExitCode;

use clap::Subcommand;
use nix::sys::signal::Signal;

/// The helpers.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Hold the programs of a cgroup by id; reads commands from stdin, writes answers to stdout
    HoldPrograms(faults::holder::Arguments),
    /// Show or reset the TCP connections of a process, as JSON
    Connections(faults::connections::Arguments),
    /// Hold the programs at devices by id; reads commands from stdin, writes answers to stdout
    HoldPackets(faults::packets::Arguments),
    /// Attach counting programs of another owner; reads commands from stdin, writes answers to stdout
    ForeignPrograms(faults::foreign::Arguments),
    /// Make copies of the maps that the programs at a hook use; reads commands from stdin, writes answers to stdout
    TwinMaps(faults::maps::TwinArguments),
    /// Replace each pinned map by one of another layout
    RefitPins(faults::maps::RefitArguments),
    /// Print where this node has its cgroups, as JSON
    Host,
    /// Print the first process of a container, as JSON
    Process(ProcessArguments),
    /// Undo what killed helpers have done, as JSON
    Undo(faults::journal::Arguments),
    /// Count programs, links, maps, pins and rules of the node, as JSON
    Remains(faults::object_counts::Arguments),
    /// Remove programs, entries of maps or tables of the node, as a third party does; prints how many, as JSON
    Wipe(faults::wipe::Arguments),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ProcessArguments {
    /// Container id, as in its runtime
    #[arg(long, value_name = "ID")]
    container: String,
    /// Signal to send to the process
    #[arg(long, value_name = "SIGSTOP|SIGKILL")]
    signal: Option<Signal>,
}

pub(crate) async fn node(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::HoldPrograms(arguments) => faults::holder::run(arguments).await.map_err(anyhow::Error::msg),
        Command::Connections(arguments) => {
            let found = faults::connections::look(arguments).map_err(anyhow::Error::msg)?;
            println!("{}", serde_json::to_string(&found)?);
            Ok(ExitCode::SUCCESS)
        }
        Command::HoldPackets(arguments) => faults::packets::run(arguments).await.map_err(anyhow::Error::msg),
        Command::ForeignPrograms(arguments) => {
            faults::foreign::run(arguments).await.map_err(anyhow::Error::msg)
        }
        Command::TwinMaps(arguments) => faults::maps::run(arguments).await.map_err(anyhow::Error::msg),
        Command::RefitPins(arguments) => {
            let refitted = faults::maps::refit(arguments).map_err(anyhow::Error::msg)?;
            println!("{}", serde_json::to_string(&refitted)?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Host => {
            println!("{}", serde_json::to_string(&existing::host()?)?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Process(ProcessArguments { container, signal }) => {
            let found = existing::container_process(container, *signal).map_err(anyhow::Error::msg)?;
            println!("{}", serde_json::to_string(&found)?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Undo(arguments) => {
            let undone = faults::journal::undo(arguments)
                .await
                .map_err(anyhow::Error::msg)?;
            println!("{}", serde_json::to_string(&undone)?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Remains(arguments) => {
            let remains = faults::object_counts::count(arguments).map_err(anyhow::Error::msg)?;
            println!("{}", serde_json::to_string(&remains)?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Wipe(arguments) => {
            let removed = faults::wipe::wipe(arguments).map_err(anyhow::Error::msg)?;
            println!("{}", serde_json::to_string(&removed)?);
            Ok(ExitCode::SUCCESS)
        }
    }
}
