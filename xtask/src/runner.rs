//! Starts a test program, for cargo or `test`: only packages whose tests make network namespaces, cgroups or eBPF
//! programs get root.

use std::{
    env,
    ffi::OsString,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::Context as _;

use crate::steps;

/// Packages whose tests need root.
const PRIVILEGED: [&str; 6] = [
    "doctor",
    "lb-loader",
    "lb-packets",
    "plumbline",
    "reference-agent",
    "test-network",
];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The test program
    program: PathBuf,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let package = env::var("CARGO_PKG_NAME").unwrap_or_default();
    let privileged =
        PRIVILEGED.contains(&package.as_str()) && env::var_os(crate::test::UNPRIVILEGED).is_none();
    let mut command = if privileged {
        steps::as_root(&arguments.program, &format!("the kernel tests of {package}"))?
    } else {
        Command::new(&arguments.program)
    };
    let error = command.args(&arguments.arguments).exec();
    Err(error).with_context(|| format!("failed to start {}", arguments.program.display()))
}
