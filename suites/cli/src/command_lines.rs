//! The command line for those who write about it: its commands, and whether lines of documents and of CI are its own.

use std::{io, iter, process::ExitCode};

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser as _, error::ErrorKind};
use serde_json::{Value, json};

use crate::Arguments;

/// Reads a JSON list of lines from stdin, each a list of the words after the program's name. Prints a JSON object with
/// `commands`, and with `refused`: for each line `null`, or what is wrong with it.
pub(crate) fn check() -> anyhow::Result<ExitCode> {
    let lines: Vec<Vec<String>> = serde_json::from_reader(io::stdin())
        .context("expected a JSON list of lines on stdin, each a list of words")?;
    let refused: Vec<Option<String>> = lines.iter().map(|words| parse(words).err()).collect();
    println!("{}", json!({ "commands": commands(), "refused": refused }));
    Ok(ExitCode::SUCCESS)
}

/// Parses the words after the program's name.
///
/// # Errors
/// What clap prints about them. `--help` and `--version` are none.
pub(crate) fn parse(words: &[String]) -> Result<(), String> {
    let line = iter::once("plumbline").chain(words.iter().map(String::as_str));
    match Arguments::try_parse_from(line) {
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(format!("expected a command, found none\n\n{error}"))
        }
        Err(error) if error.use_stderr() => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// The commands that `--help` shows, in its order.
fn commands() -> Vec<Value> {
    let arguments = Arguments::command();
    let shown = arguments
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    shown
        .map(|command| {
            let about = command.get_about().map(ToString::to_string);
            json!({ "name": command.get_name(), "about": about })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> Option<String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words).err()
    }

    #[test]
    fn lines_are_parsed_as_this_program_does() {
        for line in ["run --filter release", "list --claims", "--version", "lab --help"] {
            assert_eq!(refused(line), None, "{line}");
        }
        for (line, expected) in [
            ("run --fliter release", "--fliter"),
            ("unknown", "unknown"),
            ("report validate", "required"),
            ("lab", "expected a command, found none"),
        ] {
            let why = refused(line).unwrap_or_else(|| panic!("{line} is accepted"));
            assert!(why.contains(expected), "{line}: {why}");
        }
    }

    #[test]
    fn commands_are_those_of_the_help_with_a_line_each() {
        let commands = commands();
        let named = |name: &str| commands.iter().any(|command| command["name"] == name);
        assert!(
            named("run") && named("doctor") && !named("command-lines"),
            "{commands:?}"
        );
        for command in &commands {
            assert!(
                command["about"].as_str().is_some_and(|about| about.len() > 10),
                "{command}"
            );
        }
    }
}
