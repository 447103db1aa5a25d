//! The agent's command line, with a bug.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum, error::ErrorKind};
use mutants::{
    Mutant,
    empty_left_out::EmptyLeftOut,
    last_slice_wins::LastSliceWins,
    refill_ignored::RefillIgnored,
    stale_kept::{Overlooked, StaleKept},
    wide_release::WideRelease,
};
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
        /// As JSON: a list of objects with `name`, `bug` and `caught_by`, the ids of the cases that must fail
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
    let Some(mutant) = mutant else {
        Arguments::command()
            .error(
                ErrorKind::MissingRequiredArgument,
                "which bug? Give --mutant NAME; `plumbline-mutant list` names them",
            )
            .exit()
    };
    let stale = |overlooked| {
        execute(&command, move |planner, kernel| {
            (planner, StaleKept::new(kernel, overlooked))
        })
    };
    match mutant {
        Mutant::PrefixRelease => execute(&command, |planner, kernel| {
            (WideRelease::by_prefix(planner), kernel)
        }),
        Mutant::JoinedKeyRelease => execute(&command, |planner, kernel| {
            (WideRelease::by_joined_key(planner), kernel)
        }),
        Mutant::NameAloneRelease => execute(&command, |planner, kernel| {
            (WideRelease::by_name_alone(planner), kernel)
        }),
        Mutant::LastSliceWins => execute(&command, |planner, kernel| (LastSliceWins::new(planner), kernel)),
        Mutant::RefillIgnored => execute(&command, |planner, kernel| (RefillIgnored::new(planner), kernel)),
        Mutant::EmptyLeftOut => execute(&command, |planner, kernel| (EmptyLeftOut(planner), kernel)),
        Mutant::StaleKept => stale(Overlooked::All),
        Mutant::StaleLegacyKept => stale(Overlooked::Legacy),
        Mutant::StaleLinkKept => stale(Overlooked::Links),
        Mutant::StaleBelowKept => stale(Overlooked::Below),
        Mutant::StaleAboveKept => stale(Overlooked::Above),
        Mutant::StaleSendmsgKept => stale(Overlooked::Sendmsg),
        Mutant::CleanupForgets if matches!(command, cli::Command::Cleanup { .. }) => ExitCode::SUCCESS,
        Mutant::CleanupForgets => execute(&command, |planner, kernel| (planner, kernel)),
    }
}

fn list(json: bool) {
    let named = |mutant: &Mutant| {
        let name = mutant
            .to_possible_value()
            .map(|value| value.get_name().to_owned());
        (name.unwrap_or_default(), mutant.bug(), mutant.caught_by())
    };
    let mutants = Mutant::value_variants().iter().map(named);
    if json {
        let list: Vec<_> = mutants
            .map(|(name, bug, caught_by)| json!({"name": name, "bug": bug, "caught_by": caught_by}))
            .collect();
        println!("{:#}", json!(list));
    } else {
        mutants.for_each(|(name, bug, _)| println!("{name:20} {bug}"));
    }
}
