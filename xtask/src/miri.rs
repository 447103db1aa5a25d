//! `cargo xtask miri`: the pure crates under Miri, which sees undefined behaviour, on this machine's byte order and on
//! the other one.

use std::process::{Command, ExitCode, Stdio};

use anyhow::bail;

use crate::steps;

/// A target of the byte order that most machines don't have: network order is then native order.
const BIG_ENDIAN: &str = "s390x-unknown-linux-gnu";
/// What both the programs in the kernel and the agent are made of.
const PACKAGES: [&str; 4] = ["-p", "lb-abi", "-p", "lb-flow"];

/// Runs their tests twice.
///
/// # Errors
/// If Miri is not there: it is a component of nightly toolchains only.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    if !available() {
        bail!(
            "Miri is not here; it comes with nightly toolchains: rustup toolchain install nightly --component miri \
             --component rust-src"
        );
    }
    let native = steps::run("native byte order", miri().args(PACKAGES))?;
    let foreign = steps::run("big endian", miri().args(PACKAGES).args(["--target", BIG_ENDIAN]))?;
    Ok(if native && foreign {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn nightly() -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo"])
        .current_dir(steps::root())
        // Set by the toolchain that runs this, for what it starts.
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .env_remove("RUSTC");
    command
}

fn miri() -> Command {
    let mut command = nightly();
    command.args(["miri", "test", "--quiet"]);
    command
}

fn available() -> bool {
    let mut command = nightly();
    command
        .args(["miri", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
