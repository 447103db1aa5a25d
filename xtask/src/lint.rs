//! `cargo xtask lint`: what a change must be clean under.

use std::process::ExitCode;

use crate::{steps, tidy};

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
    // The advisory database is fetched over the network, so it is CI's business on a schedule, not this command's.
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
    let findings = tidy::findings(&steps::root())?;
    for finding in &findings {
        eprintln!("      tidy: {finding}");
    }
    clean &= findings.is_empty();
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
