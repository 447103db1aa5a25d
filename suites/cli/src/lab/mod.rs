//! `plumbline lab`: the embedded lab by hand.
//!
//! Files: `up`, `down`, `status`, `fault` (of API servers), `servers` (how many), `place` (exec, and how places are named), `files` (kubeconfig, logs), `families`
//! and `target` (of a new lab: for `plumbline run` too).

mod down;
mod families;
mod fault;
mod files;
mod place;
mod servers;
mod status;
mod target;
mod up;

pub(crate) use {families::FamilyArgs, servers::programs, target::TargetArgs};

use std::process::ExitCode;

use clap::Subcommand;
use lab::DEFAULT_NAME;

/// The embedded lab: nodes, pods, an outside client and an API server on this host.
#[derive(Debug, Subcommand)]
pub(crate) enum LabArgs {
    /// Bring a lab up; it stays up until `plumbline lab down`.
    Up(up::UpArgs),
    /// Take a lab down, and remove what a killed one left.
    Down(down::DownArgs),
    /// Show nodes, agents and pods.
    Status(NameArgs),
    /// Let something be wrong with the API servers for a while.
    Fault(fault::FaultArgs),
    /// Run a program on a node, in a pod or on the outside client.
    Exec(place::ExecArgs),
    /// Print the administrator's kubeconfig.
    Kubeconfig(files::KubeconfigArgs),
    /// Print a log, or the list of logs.
    Logs(files::LogsArgs),
    /// Be a lab. `up` starts it; its configuration comes on stdin.
    #[command(hide = true)]
    Supervise,
}

/// Which lab.
#[derive(Debug, clap::Args)]
pub(crate) struct NameArgs {
    /// The lab's name.
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,
}

/// Runs a subcommand.
///
/// # Errors
/// What kept it from doing what it was told to.
pub(crate) async fn run(args: LabArgs) -> anyhow::Result<ExitCode> {
    match args {
        LabArgs::Up(args) => up::run(args).await,
        LabArgs::Down(args) => down::run(args).await,
        LabArgs::Status(args) => status::run(&args.name).await,
        LabArgs::Fault(args) => fault::run(args).await,
        LabArgs::Exec(args) => place::run(args).await,
        LabArgs::Kubeconfig(args) => files::kubeconfig(args).await,
        LabArgs::Logs(args) => files::logs(args).await,
        LabArgs::Supervise => Ok(lab::supervise().await?),
    }
}
