//! `plumbline exec-in-pod`, which [`Cluster::exec`](cluster::Cluster::exec) starts for a pod of a cluster, and
//! `on-node`, which runs in a privileged pod and becomes a program on the pod's node.

use std::process::ExitCode;

use existing::{ExecArguments, exec_in_pod};

/// Run a program in a pod's only container, with its pipes and exit code. The program ends when stdin ends.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The program and the pod, as JSON
    what: ExecArguments,
}

/// Become a program on the node, in the mounts and the cgroup of the node's first process
#[derive(Debug, clap::Args)]
pub(crate) struct OnNode {
    /// The program and its arguments
    #[arg(required = true, last = true)]
    argv: Vec<String>,
}

pub(crate) fn on_node(arguments: &OnNode) -> anyhow::Result<ExitCode> {
    Ok(existing::on_node(&arguments.argv)?)
}

/// Exits the process with the program's exit code: a thread that waits for stdin would keep the process alive.
pub(crate) async fn exec(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match exec_in_pod(&arguments.what).await {
        Ok(code) => std::process::exit(i32::from(code)),
        Err(error) => {
            eprintln!("plumbline: {error}");
            std::process::exit(i32::from(LOST))
        }
    }
}

/// Exit code if the program could not be started or the connection to it was lost, so that its own code is unknown.
const LOST: u8 = 255;
