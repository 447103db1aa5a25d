//! Tools that the eBPF build needs besides the host's.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

/// The linker's version: another version produces other bytes.
const LINKER_VERSION: &str = "0.13.0";
/// Variable with the `library` folder of the compiler's own sources, if rustup's component is not installed.
const LIBRARY_VARIABLE: &str = "RUST_LIB_SRC";

/// Paths of the toolchain.
pub(super) struct Toolchain {
    /// The `library` folder of the compiler's own sources.
    pub(super) library: PathBuf,
}

/// Finds all tools, or names the missing ones and how to install them.
pub(super) fn find() -> anyhow::Result<Toolchain> {
    let library = library()?;
    let mut missing = Vec::new();
    match linker_version() {
        None => missing.push(format!(
            "bpf-linker {LINKER_VERSION}, not on PATH: cargo install bpf-linker --version {LINKER_VERSION} --locked"
        )),
        Some(found) if found != LINKER_VERSION => missing.push(format!(
            "bpf-linker {LINKER_VERSION}, found {found}: cargo install bpf-linker --version {LINKER_VERSION} --locked --force"
        )),
        Some(_) => {}
    }
    if !library.join("core/Cargo.toml").is_file() {
        missing.push(format!(
            "the standard library's sources, not in {}: rustup component add rust-src, or set {LIBRARY_VARIABLE} to \
             the folder `library` of the sources of this very compiler version",
            library.display()
        ));
    }
    if !missing.is_empty() {
        bail!(
            "the eBPF object can't be built here (everything else can: the object is committed). Missing:\n  - {}",
            missing.join("\n  - ")
        );
    }
    Ok(Toolchain { library })
}

fn library() -> anyhow::Result<PathBuf> {
    if let Some(named) = env::var_os(LIBRARY_VARIABLE) {
        return Path::new(&named)
            .canonicalize()
            .with_context(|| format!("{LIBRARY_VARIABLE}={} is no folder", named.display()));
    }
    let sysroot = output("rustc", &["--print", "sysroot"]).context("failed to run rustc --print sysroot")?;
    Ok(Path::new(&sysroot).join("lib/rustlib/src/rust/library"))
}

fn linker_version() -> Option<String> {
    output("bpf-linker", &["--version"])?
        .rsplit(' ')
        .next()
        .map(str::to_owned)
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
