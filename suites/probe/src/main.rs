//! The client and server that run in pods: the program of the container image.

use std::process::ExitCode;

use clap::Parser;
use probe::cli::ProbeArgs;

/// Client and server for tests of service load balancers.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: ProbeArgs,
}

fn main() -> anyhow::Result<ExitCode> {
    probe::cli::run(Arguments::parse().command)
}
