//! Commands that run on a node and end by themselves.

use std::time::Duration;

use cluster::{Cluster, Place};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::FaultError;

/// Where a node has its bpffs.
pub(crate) const BPFFS: &str = "/sys/fs/bpf";
/// Limit for one command. None of them waits for anything.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);

/// Runs a command on a node to its end. Returns its stdout.
pub(crate) async fn run(cluster: &Cluster, node: &str, command: &[&str]) -> Result<String, FaultError> {
    let refused = |why: String| FaultError::Refused {
        node: node.to_owned(),
        what: command.join(" "),
        why,
    };
    let place = Place::Host {
        node: node.to_owned(),
    };
    let argv: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
    let child = cluster.exec(&place, &argv).await?;
    let output = timeout(COMMAND_LIMIT, child.wait_with_output())
        .await
        .map_err(|_| refused(format!("it has not ended within {COMMAND_LIMIT:?}")))?
        .map_err(|error| refused(error.to_string()))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(refused(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

/// Runs `plumbline node` with these arguments. Returns what it wrote as JSON.
pub(crate) async fn plumbline<T: DeserializeOwned>(
    cluster: &Cluster,
    node: &str,
    arguments: &[&str],
) -> Result<T, FaultError> {
    let command = [&["plumbline", "node"], arguments].concat();
    let stdout = run(cluster, node, &command).await?;
    serde_json::from_str(&stdout).map_err(|error| FaultError::Helper {
        node: node.to_owned(),
        what: format!("wrote {stdout:?}"),
        stderr: error.to_string(),
    })
}
