//! Runs commands, says which, and how long each took.

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

/// Variables that a program under sudo needs as the user has them.
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

/// The cargo that runs this.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // `cargo run` tells a program its package. Told on, build scripts that watch these variables (ring's) would build
    // again with every change between `cargo xtask` and `cargo`, and subcommands would take themselves for us.
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

/// Where cargo puts the programs it builds: beside this one.
pub(crate) fn programs() -> anyhow::Result<PathBuf> {
    let own = env::current_exe().context("failed to find this program's own path")?;
    own.parent()
        .map(Path::to_path_buf)
        .context("this program has no folder")
}

/// The profile of what runs on emulated processors, or once: see the workspace's manifest.
pub(crate) const LIGHT: &str = "light";
/// That of what is measured, or runs for long.
const RELEASE: &str = "release";

/// Builds a program of a package, optimised, and says where it is.
pub(crate) fn optimised(package: &str, program: &str) -> anyhow::Result<PathBuf> {
    Ok(built(RELEASE, package, "--bin", program)?.join(program))
}

/// The same, for a part of the time.
pub(crate) fn lightly_optimised(package: &str, program: &str) -> anyhow::Result<PathBuf> {
    Ok(built(LIGHT, package, "--bin", program)?.join(program))
}

/// Builds an example, optimised, which is a program of the tests.
pub(crate) fn optimised_example(package: &str, program: &str) -> anyhow::Result<PathBuf> {
    Ok(built(RELEASE, package, "--example", program)?
        .join("examples")
        .join(program))
}

/// Builds it, and names the folder of this profile's programs.
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

/// Whether this process may do what needs root.
pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// A command that runs a program as root: itself if we are, through sudo otherwise.
pub(crate) fn as_root(program: &Path, why: &str) -> anyhow::Result<Command> {
    if is_root() {
        return Ok(Command::new(program));
    }
    ask_for_root(why)?;
    let mut command = Command::new("sudo");
    command.arg("env").args(kept_environment()).arg(program);
    Ok(command)
}

/// Lets sudo ask for the password now, if it wants one: once, before anything runs side by side.
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

/// Whether a program can be found.
pub(crate) fn on_path(program: &str) -> bool {
    found_on_path(program).is_some()
}

/// Where the `PATH` has a program first.
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

/// Runs a command to its end and says what and how long; `false` if it failed.
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

/// As [`run`], where nothing that follows would make sense after a failure.
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
