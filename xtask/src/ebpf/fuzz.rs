//! `cargo xtask ebpf fuzz`: random packets, maps and calls of sockets through the programs and through the models of
//! `ebpf/packets`.

use std::process::ExitCode;

use crate::steps;

/// The program, and its package.
const PROGRAM: &str = "lb-packets-fuzz";
const PACKAGE: &str = "lb-packets";

/// Builds the fuzzing, optimised, and runs it as root (through sudo where needed).
#[derive(clap::Args)]
#[command(after_help = "Exit codes: 0 programs and model agree, 1 they differ, 2 could not run.")]
pub(crate) struct Args {
    /// Cases of packets, each of which is maps and a few packets; of sockets, each of which is maps and some calls, a tenth of it
    /// if both are run
    #[arg(long, default_value_t = 1_000_000)]
    cases: u64,
    /// What all cases are drawn from; without it, the clock. Printed
    #[arg(long)]
    seed: Option<u64>,
    /// Number of the first case: with `--cases 1`, the only one
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Seconds after which no case is begun, half of them for either if both are run
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<u64>,
    /// What is run; without it, both: a difference is printed with what runs it again
    #[arg(long, value_parser = ["packets", "sockets"])]
    only: Option<String>,
}

/// Runs it.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    super::refresh()?;
    let program = steps::lightly_optimised(PACKAGE, PROGRAM)?;
    let mut command = steps::as_root(&program, "running eBPF programs")?;
    command.args([
        "--cases",
        &args.cases.to_string(),
        "--first",
        &args.first.to_string(),
    ]);
    if let Some(seed) = args.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    if let Some(seconds) = args.time_limit {
        command.args(["--time-limit", &seconds.to_string()]);
    }
    if let Some(only) = &args.only {
        command.args(["--only", only]);
    }
    command.current_dir(steps::root());
    steps::become_("fuzz", &mut command)
}
