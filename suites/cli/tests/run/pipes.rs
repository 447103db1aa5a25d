//! Readers that close the pipe early, as `head` does.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Command, Stdio},
};

/// The first line of a command whose reader then closes the pipe; the command must end well and print no error.
fn first_line(line: &str) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .args(line.split(' '))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::with_capacity(1, child.stdout.take().unwrap());
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    drop(stdout);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(said, "", "{line}");
    assert!(status.success(), "{line}: {status}");
    first
}

#[test]
fn a_reader_that_closes_the_pipe_is_no_error() {
    assert!(first_line("list").contains("CASE"));
    for line in [
        "list --claims",
        "list --json",
        "list --claims --json",
        "targets list",
        "targets check",
        "rbac --tier node",
        "completions bash",
        "report schema",
        "compare --permitted",
    ] {
        assert!(!first_line(line).is_empty(), "{line}");
    }
}
