//! `plumbline lab`: commands for the embedded lab.
//!
//! Files: `up`, `down`, `list`, `status`, `fault` (of API servers), `servers` (number and kind of API servers), `place`
//! (exec, and how places are named), `files` (kubeconfig, logs); `families` and `target` are options of a new lab, for
//! `plumbline run` too.

mod down;
mod families;
mod fault;
mod files;
mod list;
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
    /// Start a lab; it runs until `plumbline lab down`.
    Up(up::UpArgs),
    /// Stop a lab, and remove the remains of a killed one.
    Down(down::DownArgs),
    /// List the labs of this host.
    List,
    /// Show nodes, agents and pods.
    Status(NameArgs),
    /// Make a fault of the API servers for a while.
    Fault(fault::FaultArgs),
    /// Run a program on a node, in a pod or on the outside client.
    Exec(place::ExecArgs),
    /// Print the administrator's kubeconfig.
    Kubeconfig(files::KubeconfigArgs),
    /// Print a log, or list the logs.
    Logs(files::LogsArgs),
    /// Run the supervisor of a lab. `up` starts it, with its configuration on stdin.
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
/// The subcommand failed.
pub(crate) async fn run(args: LabArgs) -> anyhow::Result<ExitCode> {
    match args {
        LabArgs::Up(args) => up::run(args).await,
        LabArgs::Down(args) => down::run(args).await,
        LabArgs::List => list::run().await,
        LabArgs::Status(args) => status::run(&args.name).await,
        LabArgs::Fault(args) => fault::run(args).await,
        LabArgs::Exec(args) => place::run(args).await,
        LabArgs::Kubeconfig(args) => files::kubeconfig(args).await,
        LabArgs::Logs(args) => files::logs(args).await,
        LabArgs::Supervise => Ok(lab::supervise().await?),
    }
}
