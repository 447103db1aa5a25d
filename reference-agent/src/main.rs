//! The reference service load balancer agent.

use std::process::ExitCode;

use clap::Parser;
use reference_agent::cli::{self, Command};

/// Balances Kubernetes Services on this node with eBPF, at the socket.
///
/// `run` starts it, `dump` prints its maps, `cleanup` removes everything. http://127.0.0.1:9440/readyz gives the reasons if
/// the node is not ready.
#[derive(Debug, Parser)]
#[command(version, after_help = cli::EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let Arguments { command } = cli::parse();
    cli::execute(&command, |seams| seams)
}
