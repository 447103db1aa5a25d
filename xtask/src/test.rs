//! `cargo xtask test`: everything that can be tested without a cluster of one's own.

use std::{
    env, fs,
    process::{Command, ExitCode},
};

use crate::{ebpf, steps};

/// Set for tests that need root when there is none: they then say that they were skipped.
pub(crate) const UNPRIVILEGED: &str = "PLUMBLINE_UNPRIVILEGED";

/// File that tests append a line to when they could not run.
const SKIPS: &str = "PLUMBLINE_SKIPS";

/// Runs every test of the workspace with nextest where it is installed and with cargo test otherwise.
#[derive(clap::Args)]
#[command(after_help = "Exit codes: 0 all passed, 1 a test failed, 2 could not run.")]
pub(crate) struct Arguments {
    /// Leave out what needs root; each such test is listed as skipped
    #[arg(long)]
    unprivileged: bool,
    /// Use cargo test although nextest is there
    #[arg(long)]
    no_nextest: bool,
    /// Passed on, for example a filter: `cargo xtask test -- prefix`
    #[arg(last = true, value_name = "ARGS")]
    rest: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    // Tests of the lab start programs: those of packages with integration tests, which are built with them, before any runs.
    ebpf::refresh()?;
    let nextest = !arguments.no_nextest && steps::has_subcommand("nextest");
    let mut command = steps::cargo();
    if nextest {
        command
            .args(["nextest", "run", "--workspace"])
            .args(&arguments.rest);
    } else {
        command
            .args([
                "test",
                "--workspace",
                "--no-fail-fast",
                "--lib",
                "--bins",
                "--tests",
                "--",
            ])
            .args(&arguments.rest);
    }
    let skips = steps::root().join("target/plumbline/skipped.txt");
    fs::create_dir_all(skips.parent().unwrap_or(&skips))?;
    fs::write(&skips, "")?;
    command.env(SKIPS, &skips);
    if arguments.unprivileged {
        command.env(UNPRIVILEGED, "1");
    } else {
        with_root(&mut command)?;
    }
    let mut passed = steps::run("tests", &mut command)?;
    if arguments.rest.is_empty() {
        passed &= steps::run(
            "documentation tests",
            steps::cargo().args(["test", "--workspace", "--doc"]),
        )?;
    }
    report_skips(&fs::read_to_string(&skips)?);
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// Lets cargo start test programs by `runner`, unless this process is root.
pub(crate) fn with_root(command: &mut Command) -> anyhow::Result<()> {
    if !steps::is_root() {
        let own = env::current_exe()?;
        command.env(
            format!("CARGO_TARGET_{}_RUNNER", host_triple()),
            format!("{} runner", own.display()),
        );
    }
    Ok(())
}

/// A skip is never a pass: what could not run is named, every time.
fn report_skips(lines: &str) {
    let mut lines: Vec<&str> = lines.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    eprintln!("  {} skipped", lines.len());
    for line in lines {
        eprintln!("      skipped: {line}");
    }
}

/// As cargo spells the host in the name of a variable.
fn host_triple() -> String {
    format!(
        "{}_UNKNOWN_LINUX_{}",
        env::consts::ARCH,
        if cfg!(target_env = "musl") { "MUSL" } else { "GNU" }
    )
    .to_uppercase()
}
