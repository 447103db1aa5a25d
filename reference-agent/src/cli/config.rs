//! The configuration file: every option by its long name, for those that the command line does not give.
//!
//! The file's entries are appended to the command line's arguments, so that the same code reads both, and both have the
//! same options. The command line comes before the environment, and the environment before the file.

use std::{ffi::OsString, fs, path::Path};

use clap::{
    Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches, error::ErrorKind,
    parser::ValueSource,
};
use serde_json::{Map, Value};

/// Options that a configuration file can't have.
const NOT_IN_FILE: [&str; 4] = ["config", "print-config", "help", "version"];
/// The command that has all options.
const RUN: &str = "run";

/// Reads the command line of this process, and the configuration file that it names. Ends the process with exit code 2
/// if anything is wrong with them, and with 0 after `--help`, `--version` and `--print-config`.
pub fn parse<A: CommandFactory + FromArgMatches>() -> A {
    match arguments(std::env::args_os().collect()) {
        Ok(Parsed::Arguments(arguments)) => arguments,
        Ok(Parsed::Configuration(text)) => {
            print!("{text}");
            std::process::exit(0)
        }
        Err(error) => error.exit(),
    }
}

/// The result of a command line.
#[derive(Debug)]
pub enum Parsed<A> {
    /// A command with its arguments.
    Arguments(A),
    /// The configuration file that `--print-config` prints.
    Configuration(String),
}

/// Reads a command line, the name of the program first.
///
/// # Errors
/// clap's error with the argument, or the line of the file, and what is expected.
pub fn arguments<A: CommandFactory + FromArgMatches>(
    mut line: Vec<OsString>,
) -> Result<Parsed<A>, clap::Error> {
    let mut command = A::command();
    command.build();
    // Required options may be in the file.
    let given = command.clone().ignore_errors(true).try_get_matches_from(&line)?;
    let file = given.subcommand().and_then(|(name, given)| {
        let path = given.try_get_one::<std::path::PathBuf>("config").ok().flatten()?;
        Some((name.to_owned(), given.clone(), path.clone()))
    });
    let mut from_file = Vec::new();
    if let Some((name, given, path)) = &file {
        let entries =
            read(&command, path).map_err(|problem| command.error(ErrorKind::InvalidValue, problem))?;
        for (key, value, place) in entries {
            let of_this = command.find_subcommand(name).and_then(|of| option(of, &key));
            let Some(option) = of_this.cloned() else { continue };
            if is_given(given, &option) {
                continue;
            }
            let values = values(&option, &value)
                .map_err(|problem| command.error(ErrorKind::InvalidValue, format!("{place}: {problem}")))?;
            line.extend(values);
            from_file.push(option.get_id().to_string());
        }
    }
    let matches = command
        .clone()
        .try_get_matches_from(&line)
        .map_err(|error| match &file {
            Some((.., path)) if !from_file.is_empty() => named(error, path),
            _ => error,
        })?;
    if let Some((name, of_this)) = matches.subcommand()
        && of_this.try_get_one::<bool>("print_config").ok().flatten() == Some(&true)
        && let Some(command) = command.find_subcommand(name)
    {
        let path = file.as_ref().map(|(.., path)| path.as_path());
        return Ok(Parsed::Configuration(effective(
            command, of_this, &from_file, path,
        )));
    }
    A::from_arg_matches(&matches).map(Parsed::Arguments)
}

/// The entries of a file: key, value, and the place for errors.
fn read(command: &Command, path: &Path) -> Result<Vec<(String, Value, String)>, String> {
    let file = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| format!("the configuration file {file} can't be read: {error}"))?;
    // `n` is a name, not false.
    let options = serde_saphyr::options! { with_snippet: false, strict_booleans: true };
    let entries: Option<Map<String, Value>> = serde_saphyr::from_str_with_options(&text, options)
        .map_err(|error| format!("the configuration file {file} is no YAML mapping of options: {error}"))?;
    let run = command.find_subcommand(RUN);
    let known: Vec<&str> = run.into_iter().flat_map(names).collect();
    let mut read = Vec::new();
    for (key, value) in entries.unwrap_or_default() {
        let place = match line_of(&text, &key) {
            Some(number) => format!("{file}, line {number}"),
            None => file.to_string(),
        };
        if !known.contains(&key.as_str()) {
            let nearest = known.iter().max_by(|one, other| {
                strsim::jaro_winkler(&key, one).total_cmp(&strsim::jaro_winkler(&key, other))
            });
            let nearest = nearest.map_or_else(String::new, |nearest| format!("; the nearest is `{nearest}`"));
            return Err(format!("{place}: `{key}` is no option{nearest}"));
        }
        read.push((key, value, place));
    }
    Ok(read)
}

fn names(command: &Command) -> impl Iterator<Item = &str> {
    let names = command.get_arguments().filter_map(Arg::get_long);
    names.filter(|name| !NOT_IN_FILE.contains(name))
}

fn option<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    command
        .get_arguments()
        .find(|option| option.get_long() == Some(name))
}

/// The line of a key. Keys are at the beginning of a line, as the mapping is the whole file.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let is_key = |line: &str| {
        let line = line.trim_start_matches(['"', '\'']);
        let rest = line.strip_prefix(key)?.trim_start_matches(['"', '\'']);
        rest.trim_start().starts_with(':').then_some(())
    };
    text.lines()
        .position(|line| is_key(line).is_some())
        .map(|index| index + 1)
}

fn is_given(matches: &ArgMatches, option: &Arg) -> bool {
    matches!(
        matches.value_source(option.get_id().as_str()),
        Some(ValueSource::CommandLine | ValueSource::EnvVariable)
    )
}

/// An entry as arguments.
fn values(option: &Arg, value: &Value) -> Result<Vec<OsString>, String> {
    let name = option.get_long().unwrap_or_default();
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        other => Err(format!("`{name}` is a text or a number, not {other}")),
    };
    let argument = |value: &Value| Ok(format!("--{name}={}", text(value)?).into());
    match (option.get_action(), value) {
        (ArgAction::SetTrue, Value::Bool(true)) => Ok(vec![format!("--{name}").into()]),
        (ArgAction::SetTrue, Value::Bool(false)) => Ok(Vec::new()),
        (ArgAction::SetTrue, other) => Err(format!("`{name}` is true or false, not {other}")),
        (ArgAction::Append, Value::Array(values)) => values.iter().map(argument).collect(),
        (_, Value::Array(_)) => Err(format!("`{name}` takes one value, not a list")),
        (_, value) => Ok(vec![argument(value)?]),
    }
}

/// Adds the file to clap's error about arguments, of which the user may have given none.
fn named(mut error: clap::Error, path: &Path) -> clap::Error {
    use clap::error::{ContextKind, ContextValue};
    if error.kind() != ErrorKind::DisplayHelp && error.kind() != ErrorKind::DisplayVersion {
        let note = format!(
            "options of the configuration file {} count as arguments",
            path.display()
        );
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![note.into()]),
        );
    }
    error
}

/// The resulting options, with their sources.
fn effective(command: &Command, matches: &ArgMatches, from_file: &[String], path: Option<&Path>) -> String {
    let mut text = String::new();
    for option in command.get_arguments() {
        let Some(name) = option.get_long().filter(|name| !NOT_IN_FILE.contains(name)) else {
            continue;
        };
        let id = option.get_id().as_str();
        let values: Vec<String> = matches
            .get_raw(id)
            .into_iter()
            .flatten()
            .map(|value| value.to_string_lossy().into_owned())
            .collect();
        let source = match matches.value_source(id) {
            _ if from_file.iter().any(|one| one == id) => {
                path.map_or_else(String::new, |path| path.display().to_string())
            }
            Some(ValueSource::EnvVariable) => {
                let variable = option.get_env().unwrap_or_default().to_string_lossy();
                format!("environment variable {variable}")
            }
            Some(ValueSource::CommandLine) => "command line".to_owned(),
            _ => "default".to_owned(),
        };
        match (option.get_action(), values.as_slice()) {
            (_, []) => text += &format!("# {name}: not set\n"),
            (ArgAction::Append, values) => {
                text += &format!("{name}: # {source}\n");
                for value in values {
                    text += &format!("- {}\n", scalar(value));
                }
            }
            (_, [value, ..]) => text += &format!("{name}: {} # {source}\n", scalar(value)),
        }
    }
    text
}

/// A value as YAML: booleans unchanged, others quoted as in JSON.
fn scalar(value: &str) -> String {
    match value {
        "true" | "false" => value.to_owned(),
        text => Value::from(text).to_string(),
    }
}
