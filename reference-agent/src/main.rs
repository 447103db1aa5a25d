//! The reference service load balancer agent.

use std::process::ExitCode;

use clap::Parser;
use reference_agent::cli::{self, Command};

/// Balances Kubernetes Services on this node with eBPF, at the socket.
///
/// Start with `run`; look with `dump`; take it all away with `cleanup`. Is it well? Ask
/// http://127.0.0.1:9440/readyz, which gives the reasons if not.
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
