//! Runs commands, and prints their names and durations.

use std::{
    env,
    ffi::OsString,
    fmt::Write as _,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

use anyhow::{Context as _, bail};

/// Variables that a program keeps under sudo.
const KEPT: [&str; 10] = [
    "CARGO",
    "DOCKER_",
    "KIND_",
    "CARGO_",
    "NEXTEST",
    "PLUMBLINE_",
    "RUST",
    "TMPDIR",
    "TERM",
    "PROPTEST_",
];

/// The cargo that runs this program.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // `cargo run` sets variables of this package. Passed on, they would make build scripts that watch them (ring's)
    // build again after every change between `cargo xtask` and `cargo`, and subcommands would use this package as their
    // own.
    for (name, _) in env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        {
            command.env_remove(&name);
        }
    }
    command
}

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map_or_else(PathBuf::new, Path::to_path_buf)
}

/// Folder of the programs that cargo builds: the folder of this one.
pub(crate) fn programs() -> anyhow::Result<PathBuf> {
    let own = env::current_exe().context("failed to find this program's own path")?;
    own.parent()
        .map(Path::to_path_buf)
        .context("this program has no folder")
}

/// The profile of programs that run on emulated processors, or once: see the workspace's manifest.
pub(crate) const LIGHT: &str = "light";
/// The profile of programs that are measured, or run for long.
const RELEASE: &str = "release";

/// Builds an optimised program of a package; returns its path.
pub(crate) fn optimised(package: &str, program: &str) -> anyhow::Result<PathBuf> {
    Ok(built(RELEASE, package, "--bin", program)?.join(program))
}

/// As [`optimised`], with a shorter build.
pub(crate) fn lightly_optimised(package: &str, program: &str) -> anyhow::Result<PathBuf> {
    Ok(built(LIGHT, package, "--bin", program)?.join(program))
}

/// Builds an optimised example, which is a program of the tests.
pub(crate) fn optimised_example(package: &str, program: &str) -> anyhow::Result<PathBuf> {
    Ok(built(RELEASE, package, "--example", program)?
        .join("examples")
        .join(program))
}

/// Builds the program; returns the folder of this profile's programs.
fn built(profile: &str, package: &str, kind: &str, program: &str) -> anyhow::Result<PathBuf> {
    let mut build = cargo();
    build.args(["build", "--profile", profile, "--package", package, kind, program]);
    must("build", &mut build)?;
    // This program's folder is that of another profile.
    let programs = programs()?;
    let target = programs
        .parent()
        .context("this program is not in a target folder")?;
    Ok(target.join(profile))
}

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// A command that runs a program as root: directly, or through sudo.
pub(crate) fn as_root(program: &Path, why: &str) -> anyhow::Result<Command> {
    if is_root() {
        return Ok(Command::new(program));
    }
    ask_for_root(why)?;
    let mut command = Command::new("sudo");
    command.arg("env").args(kept_environment()).arg(program);
    Ok(command)
}

/// Lets sudo request the password once, before anything runs concurrently.
pub(crate) fn ask_for_root(why: &str) -> anyhow::Result<()> {
    if is_root() {
        return Ok(());
    }
    if !on_path("sudo") {
        bail!("{why} needs root, and there is no sudo here: run this as root");
    }
    let known = Command::new("sudo")
        .args(["-n", "true"])
        .stderr(Stdio::null())
        .status();
    if known.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    eprintln!("      {why} needs root: asking sudo");
    let status = Command::new("sudo")
        .arg("-v")
        .status()
        .context("failed to start sudo")?;
    if !status.success() {
        bail!("{why} needs root, and sudo refused");
    }
    Ok(())
}

fn kept_environment() -> Vec<OsString> {
    let kept = |name: &str| KEPT.iter().any(|prefix| name.starts_with(prefix));
    env::vars_os()
        .filter(|(name, _)| name.to_str().is_some_and(kept))
        .map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            name
        })
        .collect()
}

/// Whether PATH has a program.
pub(crate) fn on_path(program: &str) -> bool {
    found_on_path(program).is_some()
}

/// The first path of a program in PATH.
pub(crate) fn found_on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Whether cargo has a subcommand.
pub(crate) fn has_subcommand(name: &str) -> bool {
    let mut command = cargo();
    command
        .args([name, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a command to its end, and prints its name and duration; `false` if it failed.
pub(crate) fn run(what: &str, command: &mut Command) -> anyhow::Result<bool> {
    eprintln!("  ==> {what}: {}", shown(command));
    let begin = Instant::now();
    let status = command
        .status()
        .with_context(|| format!("failed to start {}", shown(command)))?;
    let seconds = begin.elapsed().as_secs_f64();
    eprintln!(
        "  <== {what}: {} after {seconds:.1} s",
        if status.success() { "done" } else { "FAILED" }
    );
    Ok(status.success())
}

/// As [`run`], but a failure is an error.
pub(crate) fn must(what: &str, command: &mut Command) -> anyhow::Result<()> {
    if !run(what, command)? {
        bail!("{what} failed; its output above says why");
    }
    Ok(())
}

/// Becomes the command, so that signals and the exit code are its own.
pub(crate) fn become_(what: &str, command: &mut Command) -> anyhow::Result<ExitCode> {
    eprintln!("  ==> {what}: {}", shown(command));
    let error = command.exec();
    Err(error).with_context(|| format!("failed to start {}", shown(command)))
}

fn shown(command: &Command) -> String {
    let name = Path::new(command.get_program())
        .file_name()
        .unwrap_or(command.get_program());
    let mut line = name.to_string_lossy().into_owned();
    for argument in command.get_args() {
        let _ = write!(line, " {}", argument.to_string_lossy());
    }
    line
}
