//! `plumbline exec-in-pod`: what [`Cluster::exec`](cluster::Cluster::exec) starts for a pod of a cluster; and `on-node`, which
//! that starts in a pod for its node.

use std::process::ExitCode;

use existing::{ExecArguments, exec_in_pod};

use super::ConnectionArgs;

/// Run a program in a pod's only container; pipes and exit code are the program's. It ends with its stdin.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// The pod's namespace
    #[arg(long)]
    namespace: String,
    /// The pod
    #[arg(long)]
    pod: String,
    /// The program and its arguments
    #[arg(required = true, last = true)]
    argv: Vec<String>,
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
    let code = exec_in_pod(&ExecArguments {
        connection: arguments.connection.connection(),
        namespace: arguments.namespace,
        pod: arguments.pod,
        argv: arguments.argv,
    })
    .await;
    match code {
        Ok(code) => std::process::exit(i32::from(code)),
        Err(error) => {
            eprintln!("plumbline: {error}");
            std::process::exit(i32::from(LOST))
        }
    }
}

/// Exit code where the program's own is not known: it could not be started, or the connection to it was lost.
const LOST: u8 = 255;
