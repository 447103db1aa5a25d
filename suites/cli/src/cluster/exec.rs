//! `plumbline exec-in-pod`: what [`Cluster::exec`](cluster::Cluster::exec) starts for a pod of a cluster; and `on-node`, which
//! that starts in a pod for its node.

use std::process::ExitCode;

use existing::{ExecArguments, exec_in_pod};

/// Run a program in a pod's only container; pipes and exit code are the program's. It ends with its stdin.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Which program, and where, as JSON
    what: ExecArguments,
}

/// Become a program on the node: in the mounts and the cgroup of its first process
#[derive(Debug, clap::Args)]
pub(crate) struct OnNode {
    /// The program and its arguments
    #[arg(required = true, last = true)]
    argv: Vec<String>,
}

pub(crate) fn on_node(arguments: &OnNode) -> anyhow::Result<ExitCode> {
    Ok(existing::on_node(&arguments.argv)?)
}

/// Ends this process, as the program has ended: a thread that waits for stdin would keep it.
pub(crate) async fn exec(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match exec_in_pod(&arguments.what).await {
        Ok(code) => std::process::exit(i32::from(code)),
        Err(error) => {
            eprintln!("plumbline: {error}");
            std::process::exit(i32::from(LOST))
        }
    }
}

/// Exit code where the program's own is not known: it could not be started, or the connection to it was lost.
const LOST: u8 = 255;
