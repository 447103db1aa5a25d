//! Which boot of its kernel a node is in.

use cluster::Cluster;

use crate::{FaultError, agent::on_host};

/// The id that the kernel of a node has drawn when it booted, as a process on the node reads it: another one is a reboot.
///
/// # Errors
/// No process can be run there.
pub async fn boot_id(cluster: &Cluster, node: &str) -> Result<String, FaultError> {
    let read = on_host(cluster, node, &["cat", "/proc/sys/kernel/random/boot_id"]).await?;
    Ok(read.trim().to_owned())
}
