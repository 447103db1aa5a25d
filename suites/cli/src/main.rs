//! Conformance and chaos tests for Kubernetes service load balancers, judged from packets.
//!
//! ```text
//! run ─▶ a cluster ─▶ selection ─▶ one `plumbline case` process for each case ─▶ case.json
//!                                                                                    │
//!              exit code ◀─ table, report.yaml, .html, junit.xml ◀──────────────────────────┘
//! ```
//!
//! - `run/`: the run. `report/`: its reports. `case.rs`: one case in its own process. `list.rs`: lists cases and
//!   claims. `catalogue.rs`: parts of the catalogue by their names.
//! - `command_lines.rs`: whether lines of documents and of CI are this program's.
//! - `chaos/`: seeded faults under load.
//! - `bench/`: what a connection costs, implementations side by side.
//! - `compare.rs`: two implementations, compared by random scenarios.
//! - `targets.rs`: the targets of `suites/targets`.
//! - `cluster/`: clusters by a kubeconfig. `plural.rs`: numbers as readable text.
//!   `suggestions.rs`: names similar to a misspelled one.
//! - `doctor/`: programs that rewrite connections on a node, of any implementation, and stale ones among them.
//! - `repair/`: removes and undoes what killed runs have left (`cleanup`, `heal`).
//! - `watch/`: events of a Service and its EndpointSlices. `workflows.rs`: tests that CI's commands parse.
//! - `terminal/`: colours, widths, and lines beside a bar. `output.rs`: output after its reader has gone.
//! - `completions.rs`: scripts for shells. `debug_forms.rs`: a test of output's form.
//! - `interruption.rs`: SIGINT and SIGTERM. `quick.rs`: the mark of quick runs.
//! - `lab/`: commands for the embedded lab. `node.rs`: helpers that faults start on nodes.
#[cfg(not(test))]
#[macro_use]
mod output;

mod bench;
mod case;
mod catalogue;
mod chaos;
mod cluster;
mod command_lines;
mod compare;
mod completions;
#[cfg(test)]
mod debug_forms;
mod doctor;
mod interruption;
mod lab;
mod list;
mod node;
mod plural;
mod quick;
mod repair;
mod report;
mod run;
mod suggestions;
mod targets;
mod terminal;
mod watch;
#[cfg(test)]
mod workflows;

use std::{net::SocketAddr, process::ExitCode};

use clap::{Parser, Subcommand};
use tokio::runtime::Builder;

/// Exit code of a run that could not start.
const COULD_NOT_RUN: u8 = 2;

/// The commands and what they are for, in the order in which a newcomer meets them.
const COMMANDS: &str = "\
Judge an implementation:
  run          run cases and report: in a lab, in kind, or in your cluster
  list         the cases, and the claims that they decide
  targets      known implementations; install them, check files of your own
  report       show a report again: table, HTML, JUnit, Markdown; validate it
  compare      two implementations side by side, by random scenarios
  chaos        seeded faults under load, replayed and shrunk
  bench        what a connection by a Service costs, implementations side by side

Prepare a cluster that is there:
  rbac         the permissions that a run needs
  images       the images that a run needs

After a run that was killed:
  heal         undo what it did to nodes, agents and API servers
  cleanup      remove what it has left: objects, labs, kind clusters

Look for yourself:
  lab          a small cluster on this host: nodes, pods, an outside client
  doctor       on a node: what rewrites connections, and what of it is stale
  watch        every event of a Service and its EndpointSlices
  completions  a script that completes commands and options in a shell
  help         this text, or that of a command";

/// Commands to begin with.
const EXAMPLES: &str = "\
To begin with:
  what there is to run, and one area of it
    plumbline list
    plumbline list A
  one case with the reference agent, in a lab: first what it would do
    plumbline run release-prefix-null-slice --dry-run
    sudo plumbline run release-prefix-null-slice
  an implementation that it knows, and your own, in a new kind cluster
    sudo plumbline run --target cilium A
    sudo plumbline run --provider kind --target ./own.yaml
  what a run in your cluster would touch
    plumbline run --kubeconfig FILE --target ./own.yaml --tier node --dry-run";

/// Conformance and chaos tests for Kubernetes service load balancers, judged from packets.
///
/// A case makes Services and EndpointSlices. Clients in pods, on nodes and outside dial them while something changes or
/// fails, and the backends that answered are compared with those that may. What clients see decides, never what an
/// agent says of itself.
#[derive(Debug, Parser)]
#[command(
    version,
    help_template = "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}",
    before_help = COMMANDS,
    after_help = EXAMPLES
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the cases and the claims that they decide
    List(list::Arguments),
    Run(Box<run::Arguments>),
    /// Play random Services and clients in two implementations side by side, and show their differences
    Compare(Box<compare::Arguments>),
    Chaos(Box<chaos::Arguments>),
    Bench(bench::Arguments),
    /// List, show, install and check targets
    #[command(subcommand)]
    Targets(targets::Command),
    /// Show a report again, or validate reports
    Report(report::command::Arguments),
    /// Show what rewrites connections and packets on this node, and which programs are left over from an earlier start
    Doctor(Box<doctor::Arguments>),
    /// Show every event of a Service and its EndpointSlices, with its changes
    Watch(watch::Arguments),
    /// Name or save the images that a run needs in a cluster that a kubeconfig names
    #[command(subcommand)]
    Images(cluster::images::Command),
    /// Print the permissions that a run needs in a cluster that a kubeconfig names
    Rbac(cluster::rbac::Arguments),
    /// The embedded lab: nodes, pods, an outside client and an API server on this host
    #[command(subcommand)]
    Lab(lab::LabArgs),
    /// Remove what killed runs have left: dead labs, and objects in running labs or in any cluster
    Cleanup(repair::Where),
    /// Undo what killed runs have done to labs, to kind clusters, or to any cluster: to API servers and agents, and
    /// with programs, mounts and cgroups of nodes
    Heal(repair::Where),
    /// Print a script that completes commands and options in a shell
    Completions(completions::Arguments),
    /// Run one case in this process (started by `run`)
    #[command(hide = true)]
    Case(case::Arguments),
    /// Read lines of documents from stdin, and print whether they are this program's (started by `cargo xtask docs`)
    #[command(name = "command-lines", hide = true)]
    Lines,
    /// Helpers that faults start on nodes
    #[command(hide = true, subcommand)]
    Node(node::Command),
    /// Run a program in a pod of a cluster, with this process's pipes (started by cases)
    #[command(hide = true)]
    ExecInPod(cluster::exec::Arguments),
    /// Become a program on the node of the privileged pod that runs this
    #[command(hide = true)]
    OnNode(cluster::exec::OnNode),
    /// Run a load balancer in front of kind's API servers (in a container of its own)
    #[command(hide = true)]
    Balance {
        /// The servers
        #[arg(required = true)]
        servers: Vec<SocketAddr>,
    },
    /// Hold a fault of a kind cluster's API servers, given on stdin, until stdin ends (started by cases)
    #[command(hide = true)]
    HoldApiFault {
        /// The cluster
        cluster: String,
    },
    /// The client and server that run in pods
    #[command(hide = true, subcommand)]
    Probe(probe::cli::ProbeArgs),
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(|| terminal::LogLine)
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("PLUMBLINE_LOG")
                // Requests are sent before an API server listens, and connections break when one is stopped: such
                // errors are expected.
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn,kube_client::client=off")),
        )
        .init();
    let command = Arguments::parse().command;
    let ended = start(command);
    terminal::draw(None);
    match ended {
        Ok(code) => code,
        Err(error) => {
            eprintln!("plumbline: {error:#}");
            ExitCode::from(COULD_NOT_RUN)
        }
    }
}

fn start(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List(arguments) => list::list(&arguments),
        Command::Run(arguments) => on_threads(run::run(*arguments)),
        Command::Chaos(arguments) => on_threads(chaos::chaos(*arguments)),
        Command::Bench(arguments) => on_threads(bench::bench(arguments)),
        Command::Compare(arguments) => on_threads(compare::compare(*arguments)),
        Command::Targets(command) => targets::run(&command),
        Command::Report(arguments) => report::command::report(&arguments),
        Command::Doctor(arguments) => on_threads(doctor::run(*arguments)),
        Command::Watch(arguments) => on_threads(watch::watch(arguments)),
        Command::Images(command) => cluster::images::images(&command),
        Command::Rbac(arguments) => cluster::rbac::rbac(&arguments),
        Command::Lab(arguments) => on_threads(lab::run(arguments)),
        Command::Cleanup(arguments) => on_threads(repair::cleanup(arguments)),
        Command::Heal(arguments) => on_threads(repair::heal(arguments)),
        Command::Completions(arguments) => Ok(completions::completions(&arguments)),
        Command::Case(arguments) => on_threads(case::case(arguments)),
        Command::Lines => command_lines::check(),
        Command::Node(command) => on_one_thread(node::node(&command)),
        Command::ExecInPod(arguments) => on_one_thread(cluster::exec::exec(arguments)),
        Command::OnNode(arguments) => cluster::exec::on_node(&arguments),
        Command::Balance { servers } => {
            on_one_thread(async { Ok(kind::balance(servers).await.map(|()| ExitCode::SUCCESS)?) })
        }
        Command::HoldApiFault { cluster } => {
            on_one_thread(async { Ok(kind::keep(&cluster).await.map(|()| ExitCode::SUCCESS)?) })
        }
        Command::Probe(arguments) => probe::cli::run(arguments),
    }
}

fn on_threads(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(command)
}

/// For what is many processes at once.
fn on_one_thread(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(command)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_help_groups_every_command_once() {
        let command = Arguments::command();
        let visible = command.get_subcommands().filter(|one| !one.is_hide_set());
        let mut visible: Vec<&str> = visible.map(clap::Command::get_name).chain(["help"]).collect();
        visible.sort_unstable();
        let grouped = COMMANDS
            .lines()
            .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
        let mut grouped: Vec<&str> = grouped.collect();
        grouped.sort_unstable();
        assert_eq!(grouped, visible);
    }

    #[test]
    fn the_examples_of_the_help_are_command_lines() {
        let lines: Vec<&str> = EXAMPLES
            .lines()
            .filter(|line| line.contains("plumbline "))
            .collect();
        assert_eq!(lines.len(), 7);
        for line in lines {
            let line = line.trim().trim_start_matches("sudo ");
            let parsed = Arguments::try_parse_from(line.split_whitespace());
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn every_option_of_a_run_is_under_a_heading() {
        let command = Arguments::command();
        let run = command.find_subcommand("run").unwrap();
        for argument in run.get_arguments().filter(|one| !one.is_hide_set()) {
            let id = argument.get_id().as_str();
            assert!(argument.get_help_heading().is_some(), "{id}");
        }
    }
}
