//! `cargo xtask bench`: benchmarks on this machine.

mod suite;

use std::process::ExitCode;

use clap::Subcommand;

use crate::{ebpf, steps};

/// Folder of the CSV files, below the root of the repository.
const CSV: &str = "target/plumbline/bench";

/// Measures the costs of the datapath, or of the agent, on this machine; prints a table and writes CSV files to
/// target/plumbline/bench.
#[derive(clap::Args)]
#[command(after_help = "Exit codes: 0 measured, 2 could not run. No figure is a failure.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The datapath: nanoseconds for a packet on each path, and connect() with and without the programs, among 1 and
    /// 50,000 services. Half a minute; needs root
    Datapath,
    /// The agent over the kernel's maps: 50,000 Services from nothing, one Service with 10,000 endpoints, and 1,000
    /// endpoint changes in a second. A minute and a half; needs root
    Agent {
        /// How many seconds endpoints change
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// The suite: where the time of a run in labs goes, by case and by program, and how busy the processors were. Takes
    /// as long as a run; needs root
    E2e {
        /// Passed on to `plumbline run`, for example `-- --filter release`
        #[arg(last = true, value_name = "ARGS")]
        run: Vec<String>,
    },
    /// Implementations side by side in labs, as `plumbline bench`: the reference and kube-proxy, as far as its programs are
    /// here; what a connection by a Service costs, and how soon a change is seen. Needs root, and nothing else running
    Compare {
        /// Passed on to `plumbline bench`, for example `-- --rounds 3 --services 10`
        #[arg(last = true, value_name = "ARGS")]
        bench: Vec<String>,
    },
    /// The lab: three nodes up, 50 pods, 5,000 Services with three watchers, and down. Half a minute; needs root
    Lab,
}

/// Runs one of the subcommands.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Datapath => datapath(),
        Command::Agent { seconds } => agent(*seconds),
        Command::E2e { run } => suite::bench(run),
        Command::Compare { bench } => compare(bench),
        Command::Lab => lab(),
    }
}

fn datapath() -> anyhow::Result<ExitCode> {
    ebpf::refresh()?;
    let program = steps::optimised("lb-bench", "lb-bench")?;
    let mut command = steps::as_root(&program, "loading eBPF programs")?;
    command.current_dir(steps::root()).args(["--csv", CSV]);
    steps::become_("bench", &mut command)
}

fn agent(seconds: u64) -> anyhow::Result<ExitCode> {
    ebpf::refresh()?;
    let program = steps::optimised("agent-bench", "agent-bench")?;
    let mut command = steps::as_root(&program, "loading eBPF programs")?;
    command
        .current_dir(steps::root())
        .args(["--csv", CSV, "--seconds", &seconds.to_string()]);
    steps::become_("bench", &mut command)
}

fn compare(bench: &[String]) -> anyhow::Result<ExitCode> {
    ebpf::refresh()?;
    // It is found beside the measuring one.
    steps::optimised("reference-agent", "reference-agent")?;
    let program = steps::optimised("plumbline", "plumbline")?;
    let mut command = steps::as_root(&program, "making namespaces and cgroups")?;
    command.current_dir(steps::root()).arg("bench").args(bench);
    steps::become_("bench", &mut command)
}

fn lab() -> anyhow::Result<ExitCode> {
    ebpf::refresh()?;
    // The lab consists of these two programs, and expects them beside the measuring one.
    steps::optimised("reference-agent", "reference-agent")?;
    steps::optimised("plumbline", "plumbline")?;
    let program = steps::optimised_example("plumbline", "lab_bench")?;
    let mut command = steps::as_root(&program, "making namespaces and cgroups")?;
    command.current_dir(steps::root()).args(["--csv", CSV]);
    steps::become_("bench", &mut command)
}
