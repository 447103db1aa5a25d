//! `cargo xtask ebpf`: builds the eBPF object reproducibly, and checks that the committed object matches the sources.
//!
//! | module | holds |
//! |---|---|
//! | `toolchain` | the tools that the build needs, and what to do if they are missing |
//! | `compile` | the build: the same bytes on every machine |
//! | `strip` | removal of debug sections |
//! | `verify` | the verifier's figures of each program, compared with the committed ones |
//! | `fuzz` | the differential fuzzing of the packet and the socket programs |
//! | `sources` | hashes of the sources, shared with the build script of lb-loader |

mod compile;
mod fuzz;
#[path = "../../../ebpf/loader/build/sources.rs"]
mod sources;
mod strip;
mod toolchain;
mod verify;

use std::{fs, path::Path, process::ExitCode};

use anyhow::Context as _;
use clap::Subcommand;

use crate::steps;

/// Build the eBPF object, or check the committed one.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the eBPF object and write it, with the hashes of its sources, to ebpf/prebuilt
    Build,
    /// Build to another folder and compare with ebpf/prebuilt, byte for byte; exit code 1 if they differ
    Check,
    /// Load every program and compare the verifier's figures with the committed ones; exit code 1 if a program is
    /// refused or has grown
    Verify(verify::Args),
    /// Run random packets and maps through the packet programs and through their model; exit code 1 if they differ
    Fuzz(fuzz::Args),
}

/// Runs one of the subcommands.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let built = |act: fn(&Path, &[u8], &str) -> anyhow::Result<ExitCode>| {
        let root = steps::root();
        let object = compile::object(&root, &toolchain::find()?)?;
        let hashes = sources::hashes(&root, &object).context("failed to hash the sources")?;
        act(&root, &object, &hashes)
    };
    match &args.command {
        Command::Build => built(write),
        Command::Check => built(check),
        Command::Verify(args) => verify::run(args),
        Command::Fuzz(args) => fuzz::run(args),
    }
}

/// Rebuilds the object before programs are built that embed it, if it does not match the sources and the toolchain is
/// installed. Without the toolchain the committed object is used, and the build warns about the difference.
pub(crate) fn refresh() -> anyhow::Result<()> {
    let root = steps::root();
    let committed = fs::read(root.join(sources::OBJECT)).unwrap_or_default();
    let recorded = fs::read_to_string(root.join(sources::HASHES)).unwrap_or_default();
    let hashes = sources::hashes(&root, &committed).context("failed to hash the sources")?;
    let different = sources::differences(&recorded, &hashes);
    if different.is_empty() {
        return Ok(());
    }
    eprintln!(
        "  the committed eBPF object is not that of its sources; these differ: {}",
        different.join(", ")
    );
    match toolchain::find() {
        Ok(toolchain) => {
            let object = compile::object(&root, &toolchain)?;
            let hashes = sources::hashes(&root, &object).context("failed to hash the sources")?;
            write(&root, &object, &hashes).map(drop)
        }
        Err(why) => {
            eprintln!("  it can't be built here, so what runs is the committed one: {why:#}");
            Ok(())
        }
    }
}

fn write(root: &Path, object: &[u8], hashes: &str) -> anyhow::Result<ExitCode> {
    for (path, contents) in [(sources::OBJECT, object), (sources::HASHES, hashes.as_bytes())] {
        let path = root.join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
        }
        fs::write(&path, contents).with_context(|| format!("failed to write {}", path.display()))?;
    }
    println!("{}: {} bytes", sources::OBJECT, object.len());
    Ok(ExitCode::SUCCESS)
}

fn check(root: &Path, object: &[u8], hashes: &str) -> anyhow::Result<ExitCode> {
    let read = |path: &str| {
        fs::read(root.join(path))
            .with_context(|| format!("failed to read {path}; make it with `cargo xtask ebpf build`"))
    };
    let committed = read(sources::OBJECT)?;
    let recorded = String::from_utf8_lossy(&read(sources::HASHES)?).into_owned();
    let mut same = true;
    if committed != object {
        same = false;
        let at = committed.iter().zip(object).position(|(a, b)| a != b);
        println!(
            "{} differs from what its sources make: {} bytes committed, {} built, first difference at byte {}",
            sources::OBJECT,
            committed.len(),
            object.len(),
            at.unwrap_or(committed.len().min(object.len()))
        );
    }
    for path in sources::differences(&recorded, hashes) {
        same = false;
        println!("{} records another {path}", sources::HASHES);
    }
    if same {
        println!("{} is that of its sources, byte for byte", sources::OBJECT);
        return Ok(ExitCode::SUCCESS);
    }
    println!("run `cargo xtask ebpf build` and commit ebpf/prebuilt");
    Ok(ExitCode::FAILURE)
}
