//! `cargo xtask miri`: the pure crates under Miri, which detects undefined behaviour, in both byte orders.

use std::process::{Command, ExitCode, Stdio};

use anyhow::bail;

use crate::steps;

/// A big-endian target, where network order is native order.
const BIG_ENDIAN: &str = "s390x-unknown-linux-gnu";
/// Packages that both the kernel programs and the agent use.
const PACKAGES: [&str; 4] = ["-p", "lb-abi", "-p", "lb-flow"];

/// Runs their tests twice.
///
/// # Errors
/// Miri is missing: it is a component of nightly toolchains only.
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
        // The toolchain that runs this program sets it for its children.
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
