//! `cargo xtask lint`: the static checks of a change.

use std::{
    ffi::OsStr,
    path::PathBuf,
    process::{Command, ExitCode},
};

use crate::{docs, steps, tidy, workflows};

/// Linters of `.github`: the program, its arguments, and its source. actionlint runs shellcheck, if that is installed,
/// on the scripts of steps. zizmor uses no network.
const WORKFLOWS: [(&str, &[&str], &str); 2] = [
    (
        "actionlint",
        &[],
        "go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12",
    ),
    (
        "zizmor",
        &["--offline", "--quiet", "--no-progress", "."],
        "pipx install zizmor==1.32.0, or cargo install zizmor --locked",
    ),
];

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let mut clean = steps::run("format", steps::cargo().args(["fmt", "--all", "--check"]))?;
    clean &= steps::run(
        "clippy",
        steps::cargo().args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ]),
    )?;
    let mut documentation = steps::cargo();
    documentation
        .args(["doc", "--workspace", "--no-deps", "--quiet"])
        .env("RUSTDOCFLAGS", "-D warnings");
    clean &= steps::run("documentation", &mut documentation)?;
    // Fetching the advisory database needs the network, so CI does that on a schedule.
    clean &= optional(
        "deny",
        &[
            "deny",
            "--log-level",
            "error",
            "check",
            "bans",
            "licenses",
            "sources",
        ],
    )?;
    clean &= optional("machete", &["machete", "--skip-target-dir"])?;
    for (program, arguments, install) in WORKFLOWS {
        clean &= linter(program, arguments, install)?;
    }
    // Scripts source files that other programs write, which do not exist here.
    let mut shellcheck = vec![PathBuf::from("--exclude=SC1091")];
    shellcheck.extend(tidy::scripts(&steps::root())?);
    clean &= linter("shellcheck", &shellcheck, "package shellcheck")?;
    let tidy::Findings {
        mut errors,
        questions,
    } = tidy::findings(&steps::root())?;
    errors.extend(workflows::findings(&steps::root())?);
    for finding in errors.iter().chain(&questions) {
        eprintln!("      tidy: {finding}");
    }
    let documents = docs::findings(&steps::root())?;
    for finding in &documents {
        eprintln!("      docs: {finding}");
    }
    clean &= errors.is_empty() && documents.is_empty();
    eprintln!("  lint: {}", if clean { "clean" } else { "NOT clean" });
    Ok(if clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn optional(name: &str, arguments: &[&str]) -> anyhow::Result<bool> {
    if !steps::has_subcommand(name) {
        eprintln!("  --- {name}: not run, it is not installed (cargo install cargo-{name} --locked)");
        return Ok(true);
    }
    steps::run(name, steps::cargo().args(arguments))
}

fn linter(program: &str, arguments: &[impl AsRef<OsStr>], install: &str) -> anyhow::Result<bool> {
    if !steps::on_path(program) {
        eprintln!("  --- {program}: not run, it is not installed ({install})");
        return Ok(true);
    }
    let mut command = Command::new(program);
    steps::run(program, command.args(arguments).current_dir(steps::root()))
}
