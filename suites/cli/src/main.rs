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
//! - `compare.rs`: two implementations, compared by random scenarios.
//! - `targets.rs`: the targets of `suites/targets`.
//! - `cluster/`: clusters by a kubeconfig. `plural.rs`, `paths.rs`: numbers and paths as readable text.
//!   `suggestions.rs`: names similar to a misspelled one.
//! - `doctor/`: programs that rewrite connections on a node, of any implementation, and stale ones among them.
//! - `repair/`: removes and undoes what killed runs have left (`cleanup`, `heal`).
//! - `watch/`: events of a Service and its EndpointSlices. `workflows.rs`: tests that CI's commands parse.
//! - `interruption.rs`: SIGINT and SIGTERM. `quick.rs`: the mark of quick runs.
//! - `lab/`: commands for the embedded lab. `node.rs`: helpers that faults start on nodes.
mod case;
mod catalogue;
mod cluster;
mod compare;
mod doctor;
mod interruption;
mod lab;
mod list;
mod node;
mod paths;
mod plural;
mod quick;
mod repair;
mod report;
mod run;
mod suggestions;
mod targets;
mod watch;
#[cfg(test)]
mod workflows;

use std::{net::SocketAddr, process::ExitCode};

use clap::{Parser, Subcommand};

/// Exit code of a run that could not start.
const COULD_NOT_RUN: u8 = 2;

/// Conformance and chaos tests for Kubernetes service load balancers, judged from packets.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "\
  plumbline list                      what there is to run
  plumbline run                       make a cluster, run every case, take the cluster down
  plumbline run --filter release      only cases whose id or claims match
  plumbline run --target kube-proxy-nftables   another implementation than the reference agent
  plumbline run --provider existing --kubeconfig FILE   in a cluster that is there
  plumbline compare --for 30m         random Services and clients: does it do what kube-proxy does?
  plumbline rbac                      what its account must be allowed to do
  plumbline list --claims             the whole catalogue, and what decides each claim
  plumbline targets list              what --target can be; `targets show NAME` how it is installed
  plumbline report target/plumbline/report.yaml   the last table again; --html, --junit, --markdown
  plumbline watch default/kubernetes  what happens to a Service and its EndpointSlices, in any cluster
  plumbline lab up                    a cluster to look around in; `plumbline run --lab NAME` uses it
  plumbline heal, plumbline cleanup   what a killed run has left: faults of nodes, objects, labs
  plumbline doctor                    on a node: what rewrites connections there, and what of it is stale
"
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
    /// Run one case in this process (started by `run`)
    #[command(hide = true)]
    Case(case::Arguments),
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
        .with_writer(std::io::stderr)
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("PLUMBLINE_LOG")
                // Requests are sent before an API server listens, and connections break when one is stopped: such
                // errors are expected.
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn,kube_client::client=off")),
        )
        .init();
    let command = Arguments::parse().command;
    match start(command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("plumbline: {error:#}");
            ExitCode::from(COULD_NOT_RUN)
        }
    }
}

fn start(command: Command) -> anyhow::Result<ExitCode> {
    // Probes are many processes at once, so each has one thread.
    let threads = match command {
        Command::Probe(_)
        | Command::Node(_)
        | Command::ExecInPod(_)
        | Command::OnNode(_)
        | Command::Balance { .. }
        | Command::HoldApiFault { .. } => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    }
    .enable_all()
    .build()?;
    threads.block_on(async {
        match command {
            Command::List(arguments) => list::list(&arguments),
            Command::Run(arguments) => run::run(*arguments).await,
            Command::Compare(arguments) => compare::compare(*arguments).await,
            Command::Targets(command) => targets::run(&command),
            Command::Report(arguments) => report::command::report(&arguments),
            Command::Doctor(arguments) => doctor::run(*arguments).await,
            Command::Watch(arguments) => watch::watch(arguments).await,
            Command::Images(command) => cluster::images::images(&command),
            Command::Rbac(arguments) => cluster::rbac::rbac(&arguments),
            Command::Lab(arguments) => lab::run(arguments).await,
            Command::Cleanup(arguments) => repair::cleanup(arguments).await,
            Command::Heal(arguments) => repair::heal(arguments).await,
            Command::Case(arguments) => case::case(arguments).await,
            Command::Node(command) => node::node(&command).await,
            Command::ExecInPod(arguments) => cluster::exec::exec(arguments).await,
            Command::OnNode(arguments) => cluster::exec::on_node(&arguments),
            Command::Balance { servers } => Ok(kind::balance(servers).await.map(|()| ExitCode::SUCCESS)?),
            Command::HoldApiFault { cluster } => {
                Ok(kind::keep(&cluster).await.map(|()| ExitCode::SUCCESS)?)
            }
            Command::Probe(arguments) => probe::cli::run(arguments).await,
        }
    })
}
