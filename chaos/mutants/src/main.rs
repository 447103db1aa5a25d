//! The agent's command line, with a bug.

use std::{
    collections::BTreeMap,
    env::ArgsOs,
    ffi::OsString,
    fs::create_dir,
    io,
    path::Path,
    process::{Command as Process, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clap::{CommandFactory, Parser, Subcommand, ValueEnum, error::ErrorKind};
use kube::Client;
use lb_loader::Hook;
use mutants::{
    Mutant,
    adopted_kept::adopted_kept,
    choices_forgotten::choices_forgotten,
    conditions_misread::{ConditionsMisread, Misread},
    connections_cut::connections_cut,
    cut_unnoticed::{acting, mute_after_stop, unnoticing},
    failures_forgotten::failures_forgotten,
    flows_flushed::flows_flushed,
    flows_kept::flows_kept,
    foreign_removed,
    forgetful_start::{empty_flows, flows_forgotten, services_forgotten},
    fragments_forgotten::{BPFFS, empty_fragments, fragments_forgotten},
    growing::{attach_again, growing},
    health_outlives::{HealthOutlives, answer_after},
    lost_watch::{RemovalsLost, empty_frontends},
    numbers_shared::numbers_shared,
    one_way::without_further_servers,
    pins_left,
    pods_masqueraded::{PodsMasqueraded, masquerade},
    programs_missing::{self, Missing, programs_missing},
    proxy_name_unread::unread,
    ranges_unknown::RangesUnknown,
    refused_as,
    rules_flushed::{flush, rules_flushed},
    shut_out::shut_out,
    slices_late::late,
    sockets_by_address::sockets_by_address,
    stale_kept::{CGROUP, Overlooked, overlooking},
    starts_twice::starts_twice,
    too_big_dropped::{drop_at, too_big_dropped},
    two_writes::two_writes,
    udp_kept::{Kept, udp_kept},
    wide_release::WideRelease,
};
use reference_agent::{
    cli::{self, Seams, Source, execute},
    control::Planner,
    datapath::KernelDatapath,
};
use serde_json::json;

/// Maps are compared once in more than a hundred years.
const NO_AUDIT: &str = "--audit-interval=4294967295";

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
        /// must pass), `has_control` (whether a control must pass, too), and `through` (the case to run for an id that is
        /// no case)
        #[arg(long)]
        json: bool,
    },
    /// Answer health checks at a port with 200 once the process that has started this has ended, for 150 s
    #[command(hide = true)]
    Outlive {
        /// The health check node port
        port: u16,
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
        Command::Outlive { port } => {
            return match answer_after(port, Path::new(CGROUP)) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("port {port}: {error}");
                    ExitCode::FAILURE
                }
            };
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
    let without = |missing| {
        let detach = |hooks: &[Hook]| programs_missing::detach(Path::new(CGROUP), hooks);
        execute(
            &command,
            datapath(move |kernel| programs_missing(kernel, missing, detach)),
        )
    };
    if let Some(plans) = mutant.plans() {
        return execute(&command, desired(plans));
    }
    match mutant {
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
        Mutant::ConnectionsCut => execute(&command, datapath(connections_cut)),
        Mutant::RepliesUntranslated => without(Missing::Replies),
        Mutant::HostsUnserved => without(Missing::Hosts),
        Mutant::MappedUnserved => without(Missing::Mapped),
        Mutant::UdpKept => udp_kept(Kept::All),
        Mutant::UdpSocketsKept => udp_kept(Kept::Sockets),
        Mutant::UdpChoicesKept => udp_kept(Kept::Choices),
        Mutant::OpeningKept => udp_kept(Kept::Opening),
        Mutant::FlowsFlushed => execute(&command, datapath(flows_flushed)),
        Mutant::PodsMasqueraded => {
            let pods = |pods: &_| {
                if let Err(error) = masquerade(pods) {
                    eprintln!("pods can't be masqueraded: {error}");
                }
            };
            execute(&command, desired(|planner| PodsMasqueraded::new(planner, pods)))
        }
        Mutant::HealthOutlives => {
            let start = |port: u16| {
                if let Err(error) = outlive(port) {
                    eprintln!("the helper for port {port} can't be started: {error}");
                }
            };
            execute(&command, desired(|planner| HealthOutlives::new(planner, start)))
        }
        Mutant::PrefixReleaseStaleKept => execute(&command, |seams| Seams {
            desired: WideRelease::by_prefix(seams.desired),
            datapath: overlooking(seams.datapath, Overlooked::All),
            source: seams.source,
        }),
        Mutant::UnreadyServedUdpKept => execute(&command, |seams| Seams {
            desired: ConditionsMisread::new(seams.desired, Misread::Unready),
            datapath: mutants::udp_kept::udp_kept(seams.datapath, Kept::All),
            source: seams.source,
        }),
        Mutant::SocketsByAddress => execute(&command, datapath(sockets_by_address)),
        Mutant::FiltersRemoved => {
            let greedy = |kernel| foreign_removed::greedy(kernel, foreign_removed::filters);
            execute(&command, datapath(greedy))
        }
        Mutant::ProxyNameUnread => execute(&command, watching(unread)),
        Mutant::ModeForgotten => stale(Overlooked::All),
        Mutant::SlicesLate35 => late(35),
        Mutant::SlicesLate20 => late(20),
        Mutant::RefusedEperm => refused(refused_as::EPERM),
        Mutant::RefusedEhostunreach => refused(refused_as::EHOSTUNREACH),
        Mutant::TooBigDropped => execute(&command, datapath(|kernel| too_big_dropped(kernel, drop_at))),
        Mutant::ServicesForgotten => execute(&command, datapath(services_forgotten)),
        Mutant::FlowsForgotten => {
            let forget = || drop(empty_flows(Path::new(BPFFS)));
            execute(&command, datapath(|kernel| flows_forgotten(kernel, forget)))
        }
        Mutant::NumbersShared => execute(&command, datapath(numbers_shared)),
        Mutant::RulesFlushed => {
            let flush = || {
                if let Err(error) = flush() {
                    eprintln!("nftables can't be flushed: {error}");
                }
            };
            execute(&command, datapath(|kernel| rules_flushed(kernel, flush)))
        }
        Mutant::WipeUnnoticed => execute(&command, |seams| seams),
        Mutant::FailuresForgotten => execute(&command, datapath(failures_forgotten)),
        Mutant::TwoWrites => execute(&command, datapath(two_writes)),
        Mutant::LostWatchForgets => {
            let forget = || drop(empty_frontends(Path::new(BPFFS)));
            execute(&command, watching(move |client| acting(client, forget)))
        }
        Mutant::RemovalsLost => {
            let lost = Arc::new(AtomicBool::new(false));
            let noted = Arc::clone(&lost);
            let note = move || noted.store(true, Ordering::Relaxed);
            execute(&command, |seams| {
                let seams = watching(move |client| acting(client, note))(seams);
                desired(|planner| RemovalsLost::new(planner, lost))(seams)
            })
        }
        Mutant::StopUnnoticed => execute(&command, watching(mute_after_stop)),
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
        _ => unreachable!("{mutant:?} is put together by its plans"),
    }
}

/// Starts the helper of [`Mutant::HealthOutlives`], which ends by itself.
fn outlive(port: u16) -> io::Result<()> {
    let mut helper = Process::new(std::env::current_exe()?);
    helper.args(["outlive", &port.to_string()]);
    helper.spawn().map(drop)
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
            Some(
                Mutant::StaleExclusiveKept
                | Mutant::StaleTakenForOwn
                | Mutant::HostsUnserved
                | Mutant::MappedUnserved,
            ),
            Command::Agent(cli::Command::Run(_)),
        ) => line.chain(["--probe=off".into()]).collect(),
        (Some(Mutant::WipeUnnoticed | Mutant::FailuresForgotten), Command::Agent(cli::Command::Run(_))) => {
            line.chain(["--probe=off".into(), NO_AUDIT.into()]).collect()
        }
        (Some(Mutant::OneWay), Command::Agent(_)) => without_further_servers(line),
        (Some(Mutant::ModeForgotten), Command::Agent(cli::Command::Run(_))) => {
            apart_in_other_mode(line).chain(["--probe=off".into()]).collect()
        }
        _ => return given,
    };
    match cli::arguments(line) {
        Ok(cli::Parsed::Arguments(arguments)) => arguments,
        Ok(cli::Parsed::Configuration(_)) => given,
        Err(error) => error.exit(),
    }
}

/// Without translation at sockets, the agent's pins are in a folder of their own: it knows none of its other mode's.
fn apart_in_other_mode(line: ArgsOs) -> impl Iterator<Item = OsString> {
    let line: Vec<OsString> = line.collect();
    let is_other = line.contains(&"--socket-lb=off".into());
    line.into_iter().map(move |argument| match argument.to_str() {
        Some(text) if is_other && text.starts_with("--bpffs=") => {
            let folder = format!("{text}/other-mode");
            // The agent reports a folder that is missing.
            let _ = create_dir(folder.trim_start_matches("--bpffs="));
            folder.into()
        }
        _ => argument,
    })
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
                    "name": name, "bug": mutant.bug(), "caught_by": mutant.caught_by(), "passed_by": mutant.passed_by(),
                    "has_control": mutant.has_control(), "through": through,
                })
            })
            .collect();
        println!("{:#}", json!(list));
    } else {
        mutants.for_each(|(name, mutant)| println!("{name:20} {}", mutant.bug()));
    }
}
