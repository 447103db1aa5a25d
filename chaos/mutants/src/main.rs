//! The agent's command line, with a bug.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum, error::ErrorKind};
use mutants::{Mutant, last_slice_wins::LastSliceWins, prefix_release::PrefixRelease, stale_kept::StaleKept};
use reference_agent::cli::{self, execute};
use serde_json::json;

/// The reference agent with one known bug: never for a cluster that anybody needs.
///
/// `plumbline-mutant list` names the bugs; `plumbline-mutant --mutant NAME run …` takes the arguments of
/// reference-agent.
#[derive(Debug, Parser)]
#[command(name = "plumbline-mutant", version, after_help = cli::EXIT_CODES)]
struct Arguments {
    /// Which bug
    #[arg(long, value_enum, value_name = "NAME")]
    mutant: Option<Mutant>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the mutants with their bugs.
    List {
        /// As JSON: a list of objects with `name` and `bug`
        #[arg(long)]
        json: bool,
    },
    #[command(flatten)]
    Agent(cli::Command),
}

fn main() -> ExitCode {
    let Arguments { mutant, command } = cli::parse();
    let command = match command {
        Command::List { json } => {
            list(json);
            return ExitCode::SUCCESS;
        }
        Command::Agent(command) => command,
    };
    match mutant {
        Some(Mutant::PrefixRelease) => {
            execute(&command, |planner, kernel| (PrefixRelease::new(planner), kernel))
        }
        Some(Mutant::StaleKept) => execute(&command, |planner, kernel| (planner, StaleKept(kernel))),
        Some(Mutant::LastSliceWins) => {
            execute(&command, |planner, kernel| (LastSliceWins::new(planner), kernel))
        }
        None => Arguments::command()
            .error(
                ErrorKind::MissingRequiredArgument,
                "which bug? Give --mutant NAME; `plumbline-mutant list` names them",
            )
            .exit(),
    }
}

fn list(json: bool) {
    let named = |mutant: &Mutant| {
        let name = mutant
            .to_possible_value()
            .map(|value| value.get_name().to_owned());
        (name.unwrap_or_default(), mutant.bug())
    };
    let mutants = Mutant::value_variants().iter().map(named);
    if json {
        let list: Vec<_> = mutants
            .map(|(name, bug)| json!({"name": name, "bug": bug}))
            .collect();
        println!("{:#}", json!(list));
    } else {
        mutants.for_each(|(name, bug)| println!("{name:16} {bug}"));
    }
}
