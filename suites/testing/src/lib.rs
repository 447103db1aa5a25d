//! Shared parts of tests: records of skipped tests (a skip is never a pass), a process ([`isolation`]) and a cgroup
//! ([`cgroup`]) of their own, limits of waits ([`patience`]), and programs to make images from ([`elf`]).
//!
//! A test runner only knows passed and failed, so a skipped test is recorded in a file (named by `PLUMBLINE_SKIPS`),
//! which `cargo xtask test` lists at the end of every run.

pub mod cgroup;
pub mod elf;
pub mod isolation;
pub mod patience;

use std::{
    env,
    fs::OpenOptions,
    io::{self, Write as _},
    path::PathBuf,
    thread,
};

/// Whether the test may continue as root.
///
/// `false` only if `PLUMBLINE_UNPRIVILEGED` permits skips; the skip is recorded then.
///
/// # Panics
/// Without root and without that permission: a test that can't run has not passed.
#[must_use]
pub fn root_or_skip(test: &str) -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    assert!(
        env::var_os("PLUMBLINE_UNPRIVILEGED").is_some(),
        "{test} needs root (network namespaces, cgroups, eBPF): run it as root or by `cargo xtask test`, \
         or leave such tests out with `cargo xtask test --unprivileged`"
    );
    skip(test, "needs root");
    false
}

/// Whether these programs of other projects exist, on the PATH or in one of these folders.
///
/// `false` records the test as skipped, with the first missing program.
#[must_use]
pub fn programs_or_skip(test: &str, programs: &[&str], folders: &[PathBuf]) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let all: Vec<PathBuf> = env::split_paths(&path).chain(folders.iter().cloned()).collect();
    let missing = programs
        .iter()
        .find(|program| !all.iter().any(|folder| folder.join(program).is_file()));
    if let Some(missing) = missing {
        let folders: Vec<_> = folders.iter().map(|folder| folder.display()).collect();
        skip(
            test,
            &format!("there is no {missing} on the PATH, nor in {folders:?}"),
        );
    }
    missing.is_none()
}

/// The name of the test in this thread, which is the name that the test runner gives the thread.
#[must_use]
pub fn current() -> String {
    thread::current()
        .name()
        .unwrap_or("a test without a name")
        .to_owned()
}

/// Records a skipped test.
///
/// # Panics
/// The record can't be written: the skip would be silent.
pub fn skip(test: &str, why: &str) {
    let line = format!("{test}: {why}\n");
    eprint!("SKIPPED {line}");
    if let Some(path) = env::var_os("PLUMBLINE_SKIPS") {
        // One write in append mode: lines of concurrent tests do not mix.
        let written: io::Result<()> = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&path)
            .and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(
            written.is_ok(),
            "failed to put a skipped test on record in {}: {written:?}",
            path.display()
        );
    }
}
