//! `cargo xtask e2e`: the suite.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;

use crate::{ebpf, steps};

/// Programs that a run needs, built as the user.
pub(crate) const PROGRAMS: [&str; 2] = ["plumbline", "reference-agent"];

/// Builds as the user, then runs the suite as root (through sudo where needed) in a cluster made for it.
#[derive(clap::Args)]
#[command(after_help = "Exit codes: 0 nothing failed, 1 something failed, 2 could not run.")]
pub(crate) struct Arguments {
    /// The target under test instead of the reference agent, as for `plumbline run --target`: kube-proxy-nftables,
    /// kube-proxy-iptables, or the path of a file
    #[arg(long, value_name = "NAME|FILE")]
    target: Option<String>,
    /// The cluster: a lab of this host's namespaces, or a kind cluster (needs Docker and kind), with images of the
    /// programs built here
    #[arg(long, value_name = "lab|kind", default_value = "lab")]
    provider: Provider,
    /// Arguments for `plumbline run`; `-- --help` lists them
    #[arg(last = true, value_name = "ARGS")]
    run: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Provider {
    Lab,
    Kind,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let programs = match arguments.provider {
        Provider::Lab => {
            build(&PROGRAMS)?;
            steps::programs()?
        }
        Provider::Kind => build_static(&PROGRAMS)?,
    };
    let program = programs.join("plumbline");
    let mut command = steps::as_root(&program, "making the cluster")?;
    // Reports go to `target/plumbline` below the workspace, unless `--out` is given.
    command.arg("run").current_dir(steps::root());
    if arguments.provider == Provider::Kind {
        command.args(["--provider", "kind"]);
    }
    if let Some(target) = &arguments.target {
        command.args(["--target", target]);
    }
    command.args(&arguments.run);
    steps::become_("suite", &mut command)
}

/// Builds programs of the workspace, each from a package of its own name.
pub(crate) fn build(packages: &[&str]) -> anyhow::Result<()> {
    ebpf::refresh()?;
    let mut command = steps::cargo();
    command.arg("build");
    for package in packages {
        command.args(["--package", package]);
    }
    steps::must("build", &mut command)
}

/// Folder of static programs, below cargo's target folder.
const STATIC: &str = "static";

/// Builds the same as static programs, for images FROM scratch, in a folder of their own, since the others may be
/// running. Dependencies are shared with normal builds, and only the programs are linked differently; `cargo xtask
/// dist` builds those of a release.
pub(crate) fn build_static(packages: &[&str]) -> anyhow::Result<PathBuf> {
    ebpf::refresh()?;
    let programs = steps::programs()?;
    let profile = programs.file_name().context("this program has no folder")?;
    let target = programs
        .parent()
        .context("this program is not in a target folder")?;
    let own = target.join(STATIC);
    for package in packages {
        let mut command = steps::cargo();
        command
            .env("CARGO_BUILD_BUILD_DIR", target)
            .args(["rustc", "--package", package, "--bins"])
            .arg("--target-dir")
            .arg(&own);
        command.args(["--", "-C", "target-feature=+crt-static", "-C", "strip=symbols"]);
        // At fixed addresses, as plumbline's build script has its development builds: the start-up code of a static
        // program that can be moved crashes where the program cannot.
        command.args(["-C", "relocation-model=static"]);
        steps::must("build, static", &mut command)?;
    }
    Ok(own.join(profile))
}
