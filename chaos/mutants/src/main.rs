//! The agent's command line, with a bug.

use std::{collections::BTreeMap, ffi::OsString, path::Path, process::ExitCode, time::Duration};

use clap::{CommandFactory, Parser, Subcommand, ValueEnum, error::ErrorKind};
use kube::Client;
use mutants::{
    Mutant,
    adopted_kept::adopted_kept,
    balancers_owned::BalancersOwned,
    choices_forgotten::choices_forgotten,
    cut_unnoticed::unnoticing,
    empty_left_out::EmptyLeftOut,
    endpoints_kept::{EndpointsKept, KeptEndpoints},
    flows_flushed::flows_flushed,
    flows_kept::flows_kept,
    foreign_removed,
    fragments_forgotten::{BPFFS, empty_fragments, fragments_forgotten},
    gateway::{self, Gateway},
    growing::{attach_again, growing},
    host_once::HostOnce,
    kubernetes_left_out::KubernetesLeftOut,
    last_slice_wins::LastSliceWins,
    locked_out::LockedOut,
    node_ports_taken::NodePortsTaken,
    one_way::{OneWay, without_further_servers},
    pins_left,
    ranges_unknown::RangesUnknown,
    refill_doubled::RefillDoubled,
    refill_ignored::RefillIgnored,
    refused_as,
    replies_untranslated::{detach_recvmsg, replies_untranslated},
    restored_by_prefix::RestoredByPrefix,
    rewritten_ignored::RewrittenIgnored,
    shut_out::shut_out,
    slices_by_name::SlicesByName,
    slices_late::late,
    sockets_by_address::sockets_by_address,
    stale_kept::{CGROUP, Overlooked, overlooking},
    starts_twice::starts_twice,
    udp_kept::{Kept, udp_kept},
    wide_release::WideRelease,
};
use reference_agent::{
    cli::{self, Seams, Source, execute},
    control::Planner,
    datapath::KernelDatapath,
};
use serde_json::json;

/// The production agent's parts.
type Production = Seams<Planner, KernelDatapath>;

/// The reference agent with one known bug: never for a cluster that is in use.
///
/// `plumbline-mutant list` names the bugs; `plumbline-mutant --mutant NAME run …` takes the arguments of
/// reference-agent.
#[derive(Debug, Parser)]
#[command(name = "plumbline-mutant", version, after_help = cli::EXIT_CODES)]
struct Arguments {
    /// The bug
    #[arg(long, value_enum, value_name = "NAME")]
    mutant: Option<Mutant>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the mutants with their bugs
    List {
        /// Print JSON: a list of objects with `name`, `bug`, `caught_by` (ids that must fail), `passed_by` (ids that
        /// must pass), and `through` (the case to run for an id that is no case)
        #[arg(long)]
        json: bool,
    },
    #[command(flatten)]
    Agent(cli::Command),
}

fn main() -> ExitCode {
    let Arguments { mutant, command } = parse();
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
    let stale = |overlooked| execute(&command, datapath(|kernel| overlooking(kernel, overlooked)));
    // Programs above the agent's cgroup run after its own, and not if those refuse.
    let stale_above = |overlooked| {
        execute(&command, |seams| Seams {
            desired: RangesUnknown(seams.desired),
            datapath: overlooking(seams.datapath, overlooked),
            source: seams.source,
        })
    };
    let kept = |kept| execute(&command, desired(|planner| EndpointsKept::new(planner, kept)));
    let shut_out = |by| execute(&command, datapath(|kernel| shut_out(kernel, by)));
    let udp_kept = |kept| execute(&command, datapath(move |kernel| udp_kept(kernel, kept)));
    let late = |seconds| {
        execute(
            &command,
            watching(move |client| late(client, Duration::from_secs(seconds))),
        )
    };
    let refused = |errno| {
        let also = move || refused_as::attach_behind(Path::new(CGROUP), errno);
        execute(
            &command,
            datapath(move |kernel| refused_as::refused_as(kernel, also)),
        )
    };
    match mutant {
        Mutant::PrefixRelease => execute(&command, desired(WideRelease::by_prefix)),
        Mutant::JoinedKeyRelease => execute(&command, desired(WideRelease::by_joined_key)),
        Mutant::NameAloneRelease => execute(&command, desired(WideRelease::by_name_alone)),
        Mutant::AddressRelease => execute(&command, desired(WideRelease::by_address)),
        Mutant::OutsideRelease => execute(&command, desired(WideRelease::by_prefix_outside)),
        Mutant::LastSliceWins => execute(&command, desired(LastSliceWins::new)),
        Mutant::RefillIgnored => execute(&command, desired(RefillIgnored::new)),
        Mutant::RefillDoubled => execute(&command, desired(RefillDoubled::new)),
        Mutant::RewrittenIgnored => execute(&command, desired(RewrittenIgnored::new)),
        Mutant::RestoredByPrefix => execute(&command, desired(RestoredByPrefix::new)),
        Mutant::KubernetesRefillIgnored => execute(&command, desired(RefillIgnored::of_kubernetes)),
        Mutant::KubernetesLeftOut => execute(&command, desired(KubernetesLeftOut)),
        Mutant::EmptiedKept => kept(KeptEndpoints::Emptied),
        Mutant::LeftKept => kept(KeptEndpoints::Left),
        Mutant::EmptyLeftOut => execute(&command, desired(EmptyLeftOut::new)),
        Mutant::EmptyAnswered => {
            let answered = |planner| Gateway::new(EmptyLeftOut::new(planner), gateway::to_this_node());
            execute(&command, desired(answered))
        }
        Mutant::DeadAnswered => {
            let answered = |planner| Gateway::new(RangesUnknown(planner), gateway::to_this_node());
            execute(&command, desired(answered))
        }
        Mutant::LockedOut => execute(&command, desired(LockedOut::new)),
        Mutant::OneWay => execute(&command, desired(OneWay)),
        Mutant::CutUnnoticed => execute(&command, watching(unnoticing)),
        Mutant::StaleKept => stale(Overlooked::All),
        Mutant::StaleLegacyKept => stale(Overlooked::Legacy),
        Mutant::StaleLinkKept => stale(Overlooked::Links),
        Mutant::StaleBelowKept => stale(Overlooked::Below),
        Mutant::StaleAboveKept => stale_above(Overlooked::Above),
        Mutant::StaleAboveShownKept => stale_above(Overlooked::AboveShown),
        Mutant::StaleExclusiveKept => shut_out(Overlooked::Exclusive),
        Mutant::StaleTakenForOwn => shut_out(Overlooked::All),
        Mutant::AdoptedKept => execute(&command, datapath(adopted_kept)),
        Mutant::Growing => {
            let again = || attach_again(Path::new(CGROUP));
            execute(&command, datapath(|kernel| growing(kernel, again)))
        }
        Mutant::StartsTwice => {
            let end = || std::process::exit(1);
            execute(&command, datapath(|kernel| starts_twice(kernel, end)))
        }
        Mutant::StaleSendmsgKept => stale(Overlooked::Sendmsg),
        Mutant::StaleReverseKept => stale(Overlooked::Reverse),
        Mutant::StaleTcKept => stale(Overlooked::Tc),
        Mutant::StaleXdpKept => stale(Overlooked::Xdp),
        Mutant::ForeignRemoved => {
            let greedy = |kernel| foreign_removed::greedy(kernel, foreign_removed::others);
            execute(&command, datapath(greedy))
        }
        Mutant::OwnedByName => {
            let greedy = |kernel| foreign_removed::greedy(kernel, foreign_removed::namesakes);
            execute(&command, datapath(greedy))
        }
        Mutant::ChoicesForgotten => execute(&command, datapath(choices_forgotten)),
        Mutant::FragmentsForgotten => {
            // The next round removes what is left.
            let forget = || drop(empty_fragments(Path::new(BPFFS)));
            execute(&command, datapath(|kernel| fragments_forgotten(kernel, forget)))
        }
        Mutant::FlowsKept => execute(&command, datapath(flows_kept)),
        Mutant::UdpKept => udp_kept(Kept::All),
        Mutant::UdpSocketsKept => udp_kept(Kept::Sockets),
        Mutant::UdpChoicesKept => udp_kept(Kept::Choices),
        Mutant::FlowsFlushed => execute(&command, datapath(flows_flushed)),
        Mutant::RepliesUntranslated => {
            let detach = || detach_recvmsg(Path::new(CGROUP));
            execute(&command, datapath(|kernel| replies_untranslated(kernel, detach)))
        }
        Mutant::NodePortsTaken => execute(&command, desired(NodePortsTaken)),
        Mutant::BalancersOwned => execute(&command, desired(BalancersOwned)),
        Mutant::HostOnce => execute(&command, desired(HostOnce::new)),
        Mutant::SlicesByName => execute(&command, desired(SlicesByName::new)),
        Mutant::PrefixReleaseSlicesByName => {
            let both = |planner| SlicesByName::new(WideRelease::by_prefix(planner));
            execute(&command, desired(both))
        }
        Mutant::SocketsByAddress => execute(&command, datapath(sockets_by_address)),
        Mutant::FiltersRemoved => {
            let greedy = |kernel| foreign_removed::greedy(kernel, foreign_removed::filters);
            execute(&command, datapath(greedy))
        }
        Mutant::SlicesLate40 => late(40),
        Mutant::SlicesLate20 => late(20),
        Mutant::RefusedEperm => refused(refused_as::EPERM),
        Mutant::RefusedEhostunreach => refused(refused_as::EHOSTUNREACH),
        Mutant::PinsLeft => {
            let misplaced = match &command {
                cli::Command::Cleanup(cleanup) => pins_left::misplace(cleanup.bpffs()),
                _ => Ok(()),
            };
            if let Err(error) = misplaced {
                eprintln!("the pins can't be misplaced: {error}");
                return ExitCode::FAILURE;
            }
            execute(&command, |seams| seams)
        }
        Mutant::CleanupForgets if matches!(command, cli::Command::Cleanup { .. }) => ExitCode::SUCCESS,
        Mutant::CleanupForgets => execute(&command, |seams| seams),
    }
}

/// The agent with another desired state.
fn desired<B>(decorate: impl FnOnce(Planner) -> B) -> impl FnOnce(Production) -> Seams<B, KernelDatapath> {
    |seams| Seams {
        desired: decorate(seams.desired),
        datapath: seams.datapath,
        source: seams.source,
    }
}

/// The agent with another datapath.
fn datapath<D>(decorate: impl FnOnce(KernelDatapath) -> D) -> impl FnOnce(Production) -> Seams<Planner, D> {
    |seams| Seams {
        desired: seams.desired,
        datapath: decorate(seams.datapath),
        source: seams.source,
    }
}

/// The agent with another client for its watches.
fn watching(decorate: impl FnOnce(Client) -> Client) -> impl FnOnce(Production) -> Production {
    |mut seams| {
        if let Source::Api { client, .. } = &mut seams.source {
            *client = decorate(client.clone());
        }
        seams
    }
}

/// Parses the command line. A mutant that must not detect its own failure gets no self-probe, and one that must not
/// know other API servers does not get their addresses.
fn parse() -> Arguments {
    let given: Arguments = cli::parse();
    let line = std::env::args_os();
    let line: Vec<OsString> = match (given.mutant, &given.command) {
        (
            Some(Mutant::StaleExclusiveKept | Mutant::StaleTakenForOwn),
            Command::Agent(cli::Command::Run(_)),
        ) => line.chain(["--probe=off".into()]).collect(),
        (Some(Mutant::OneWay), Command::Agent(_)) => without_further_servers(line),
        _ => return given,
    };
    match cli::arguments(line) {
        Ok(cli::Parsed::Arguments(arguments)) => arguments,
        Ok(cli::Parsed::Configuration(_)) => given,
        Err(error) => error.exit(),
    }
}

fn list(json: bool) {
    let named = |mutant: &Mutant| {
        let name = mutant
            .to_possible_value()
            .map(|value| value.get_name().to_owned());
        (name.unwrap_or_default(), *mutant)
    };
    let mutants = Mutant::value_variants().iter().map(named);
    if json {
        let list: Vec<_> = mutants
            .map(|(name, mutant)| {
                let through: BTreeMap<_, _> = mutant.through().iter().copied().collect();
                json!({
                    "name": name, "bug": mutant.bug(), "caught_by": mutant.caught_by(), "passed_by": mutant.passed_by(), "through": through,
                })
            })
            .collect();
        println!("{:#}", json!(list));
    } else {
        mutants.for_each(|(name, mutant)| println!("{name:20} {}", mutant.bug()));
    }
}
