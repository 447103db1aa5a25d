//! What the program writes to a terminal and to a pipe.
#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::{
    fs::File,
    io::{ErrorKind, Read as _},
    path::PathBuf,
    process::{Command, Stdio},
};

use nix::{
    pty::{Winsize, openpty},
    sys::termios::Termios,
};

const ESCAPE: char = '\u{1b}';

/// The report of the golden files, in a folder.
fn report() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let snapshot = include_str!("../../src/report/snapshots/plumbline__report__golden__report.yaml.snap");
    let (_, yaml) = snapshot[3..].split_once("\n---\n").unwrap();
    let file = folder.path().join("report.yaml");
    std::fs::write(&file, yaml).unwrap();
    (folder, file)
}

/// `plumbline report` with these options and variables, and no other variable about colours.
fn shows(options: &[&str], variables: &[(&str, &str)]) -> (tempfile::TempDir, Command) {
    let (folder, file) = report();
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumbline"));
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
        command.env_remove(name);
    }
    command
        .arg("report")
        .arg(file)
        .args(options)
        .env("TERM", "xterm")
        .envs(variables.iter().copied());
    (folder, command)
}

/// Output to a pipe.
fn piped(options: &[&str], variables: &[(&str, &str)]) -> String {
    let (_folder, mut command) = shows(options, variables);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Output to a terminal of this width.
fn on_a_terminal(columns: u16, options: &[&str], variables: &[(&str, &str)]) -> String {
    let size = Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let terminal = openpty(&size, None::<&Termios>).unwrap();
    let (_folder, mut command) = shows(options, variables);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(terminal.slave)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It holds the terminal's other end.
    drop(command);
    let mut text = Vec::new();
    let mut output = File::from(terminal.master);
    let mut buffer = [0; 4096];
    loop {
        match output.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => text.extend(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // EIO: the last holder of the other end has ended.
            Err(_) => break,
        }
    }
    assert!(child.wait().unwrap().success());
    String::from_utf8(text).unwrap()
}

#[test]
fn a_pipe_has_no_colours_unless_an_option_or_a_variable_wants_them() {
    for (options, variables, has_colours) in [
        (&[][..], &[][..], false),
        (&["--color", "always"], &[], true),
        (&[], &[("CLICOLOR_FORCE", "1")], true),
        (&[], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false),
        (&["--color", "always"], &[("NO_COLOR", "1")], true),
        (&["--color", "never"], &[("CLICOLOR_FORCE", "1")], false),
    ] {
        let text = piped(options, variables);
        assert_eq!(
            text.contains(ESCAPE),
            has_colours,
            "{options:?} {variables:?}: {text}"
        );
        assert!(
            text.contains("7 cases in 5 min 1 s: 1 passed, 2 failed"),
            "{text}"
        );
    }
    let plain = piped(&[], &[]);
    let is_control = |character: char| character.is_control() && character != '\n';
    assert!(!plain.contains(is_control), "{plain:?}");
}

#[test]
fn a_terminal_has_colours_unless_an_option_or_a_variable_does_not_want_them() {
    for (options, variables, has_colours) in [
        (&[][..], &[][..], true),
        (&[], &[("NO_COLOR", "1")], false),
        (&[], &[("TERM", "dumb")], false),
        (&["--color", "never"], &[], false),
    ] {
        let text = on_a_terminal(80, options, variables);
        assert_eq!(
            text.contains(ESCAPE),
            has_colours,
            "{options:?} {variables:?}: {text}"
        );
    }
}

#[test]
fn lines_fit_the_terminal() {
    for columns in [80, 120] {
        let text = on_a_terminal(columns, &["--color", "never"], &[]);
        let longest = text
            .lines()
            .map(|line| line.trim_end().chars().count())
            .max()
            .unwrap();
        assert!(
            longest <= columns.into() && longest > usize::from(columns) * 3 / 4,
            "{text}"
        );
    }
}

#[test]
fn a_reader_that_wants_only_the_first_line_is_no_error() {
    let (_folder, mut command) = shows(&["--junit"], &[]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}
