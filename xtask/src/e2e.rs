//! `cargo xtask e2e`: the main job.

use std::process::ExitCode;

use crate::{ebpf, steps};

/// Programs that a run needs, built as the user.
pub(crate) const PROGRAMS: [&str; 2] = ["plumbline", "reference-agent"];

/// Builds as the user, then runs the suite as root (through sudo where needed) in a cluster made for it.
#[derive(clap::Args)]
#[command(after_help = "Exit codes: 0 nothing failed, 1 something failed, 2 could not run.")]
pub(crate) struct Arguments {
    /// What is under test in place of the reference agent, as `plumbline run --target` takes it: kube-proxy-nftables,
    /// kube-proxy-iptables, or the path of a file
    #[arg(long, value_name = "NAME|FILE")]
    target: Option<String>,
    /// Passed on to `plumbline run`; `-- --help` shows what it takes
    #[arg(last = true, value_name = "ARGS")]
    run: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    build(&PROGRAMS)?;
    let program = steps::programs()?.join("plumbline");
    let mut command = steps::as_root(&program, "making the cluster")?;
    // Reports go to `target/plumbline` below the workspace, unless `--out` says otherwise.
    command.arg("run").current_dir(steps::root());
    if let Some(target) = &arguments.target {
        command.args(["--target", target]);
    }
    command.args(&arguments.run);
    steps::become_("suite", &mut command)
}

/// Builds programs of the workspace, each a package of its own name.
pub(crate) fn build(packages: &[&str]) -> anyhow::Result<()> {
    ebpf::refresh()?;
    let mut command = steps::cargo();
    command.arg("build");
    for package in packages {
        command.args(["--package", package]);
    }
    steps::must("build", &mut command)
}
