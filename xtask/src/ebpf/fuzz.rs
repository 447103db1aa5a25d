//! `cargo xtask ebpf fuzz`: runs random packets, maps and socket calls through the programs and through the models of
//! `ebpf/packets`.

use std::process::ExitCode;

use crate::steps;

/// The program, and the name of its package.
const PROGRAM: &str = "lb-packets-fuzz";
const PACKAGE: &str = "lb-packets";

/// Builds the fuzzer, optimised, and runs it as root (through sudo where needed).
#[derive(clap::Args)]
#[command(after_help = "Exit codes: 0 programs and model agree, 1 they differ, 2 could not run.")]
pub(crate) struct Args {
    /// Number of cases. A packet case consists of maps and a few packets; a socket case of maps and some calls. Socket
    /// cases are a tenth if both are run
    #[arg(long, default_value_t = 1_000_000)]
    cases: u64,
    /// Seed of all cases; printed. The default is from the clock
    #[arg(long)]
    seed: Option<u64>,
    /// Number of the first case: with `--cases 1`, the only one
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Seconds after which no case is started, half of them for each kind if both are run
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<u64>,
    /// Kind of cases; both by default. A difference is printed with the command that reproduces it
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
