//! What tests do when the machine lacks what they need: a skip is never a pass. And what tests on the kernel have in
//! common: a process ([`isolation`]) and a cgroup ([`cgroup`]) of their own.
//!
//! A test runner knows only passed and failed, so a skipped test is told to `cargo xtask test` through a file
//! (named by `PLUMBLINE_SKIPS`), which lists it at the end of every run.

pub mod cgroup;
pub mod isolation;

use std::{
    env,
    fs::OpenOptions,
    io::{self, Write as _},
    thread,
};

/// Whether the test may go on as root.
///
/// `false` only if skipping was asked for (`PLUMBLINE_UNPRIVILEGED`), and then the skip is on record.
///
/// # Panics
/// Without root and without having been asked to skip: a test that can't run has not passed.
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

/// The name of the test that this thread runs, as the test runner names its threads.
#[must_use]
pub fn current() -> String {
    thread::current()
        .name()
        .unwrap_or("a test without a name")
        .to_owned()
}

/// Puts a skipped test on record.
///
/// # Panics
/// If the record can't be written: the skip would be silent.
pub fn skip(test: &str, why: &str) {
    let line = format!("{test}: {why}\n");
    eprint!("SKIPPED {line}");
    if let Some(path) = env::var_os("PLUMBLINE_SKIPS") {
        // One write in append mode: lines of tests that run side by side do not mix.
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
