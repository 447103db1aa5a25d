//! The command line, for the agent and for its mutants.
//!
//! | file | what |
//! |---|---|
//! | `config` | the configuration file |
//! | `run` | the agent |
//! | `plan_options`, `source`, `log` | groups of options |
//! | `plan`, `dump`, `cleanup` | the other commands |

mod cleanup;
mod config;
mod dump;
mod log;
mod plan;
mod plan_options;
mod run;
mod source;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};

pub use self::{
    cleanup::Cleanup,
    config::{Parsed, arguments, parse},
    dump::Dump,
    plan::Plan,
    run::{Run, Seams},
    source::Source,
};
use crate::{
    control::{DesiredState, Planner},
    datapath::{Datapath, KernelDatapath},
};

/// The end of `--help`.
pub const EXIT_CODES: &str = "Exit codes: 0 done, or ended by SIGTERM or SIGINT with everything left in place; \
1 failed, with the reason on stderr (plan: 2; 1 says that something differs); 2 wrong arguments or a wrong configuration file.";

/// The agent's commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve Services on this node until SIGTERM or SIGINT.
    ///
    /// Takes Services, EndpointSlices and Nodes from the API server, or from the files of a folder (--from), and keeps the
    /// eBPF maps up to date. Programs and maps are pinned: when the agent ends, they go on serving, and the next start
    /// adopts them without a gap. To remove the datapath, end the agent and run `cleanup`.
    ///
    /// /readyz at --listen gives the reasons if the node is not ready, one per line; /findings has every part of an object
    /// that can't be used; /metrics has counters; /dump shows the maps.
    ///
    /// Every option can also be set in a YAML file, by its long name, as in `node: worker-1`. The command line comes before
    /// the environment, and the environment before the file; `--print-config` shows the resulting options with their
    /// sources.
    ///
    /// Needs CAP_SYS_ADMIN, CAP_NET_ADMIN, a mounted bpffs and cgroup v2. One agent per node.
    Run(Box<Run>),
    /// Print the planned contents of the maps, from scratch; with --diff their differences from the maps.
    ///
    /// Lists all objects once, from the API server or from the files of a folder (--from), and plans for this node as
    /// `run` would with the same options. Writes nothing, and needs no agent. Parts of objects that can't be used are
    /// listed on stderr.
    ///
    /// Exit codes as those of diff: 0 nothing differs (without --diff: printed), 1 something differs, 2 failed.
    Plan(Box<Plan>),
    /// Print the contents of the maps: every frontend with its backends, then addresses, then defects, if any.
    ///
    /// Other ports of these addresses are refused. A frontend by Maglev shows the size of its table and a digest of it,
    /// which is the same on every node.
    ///
    /// Reads the maps through the running agent, or the pinned maps if none runs; stderr says which. Sorted and without
    /// ids, so that two nodes can be compared with diff.
    Dump(Dump),
    /// Detach every program of this agent, of any start, and remove its pins; programs of other owners stay. Remove the
    /// pods' network, too, if an agent has set one up: configuration, routes and masquerading.
    ///
    /// Connections that were translated stay as they are; new ones to Services are not translated any more. No
    /// agent may be running. Nothing there is no error.
    Cleanup(Cleanup),
}

#[derive(Debug, Args)]
struct Cgroup {
    /// Root of the cgroup v2 hierarchy: all processes of the node are in it or below it
    #[arg(long, value_name = "FOLDER", default_value = "/sys/fs/cgroup")]
    cgroup: PathBuf,
}

#[derive(Debug, Args)]
struct Bpffs {
    /// A mounted bpffs; pins go below its folder `plumbline`
    #[arg(long, value_name = "FOLDER", default_value = "/sys/fs/bpf")]
    bpffs: PathBuf,
}

#[derive(Debug, Args)]
struct ConfigFile {
    /// A YAML file with options by their long names, for those that are given nowhere else
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Runs the command. `compose` returns the agent's parts: the production agent uses them unchanged, a mutant decorates one.
pub fn execute<B, D>(
    command: &Command,
    compose: impl FnOnce(Seams<Planner, KernelDatapath>) -> Seams<B, D>,
) -> ExitCode
where
    B: DesiredState + 'static,
    D: Datapath + 'static,
{
    let result = match command {
        Command::Run(run) => run::run(run, compose).map(|()| ExitCode::SUCCESS),
        Command::Plan(plan) => plan::plan(plan).map(|same| {
            if same {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }),
        Command::Dump(dump) => dump::dump(dump).map(|()| ExitCode::SUCCESS),
        Command::Cleanup(cleanup) => cleanup::cleanup(cleanup).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        match command {
            // As with diff, 1 means a difference.
            Command::Plan(_) => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    })
}
