//! Which boot of its kernel a node is in.

use cluster::Cluster;

use crate::{FaultError, commands};

/// The boot id of a node's kernel. A new one is a reboot.
///
/// # Errors
/// No process can run there.
pub async fn boot_id(cluster: &Cluster, node: &str) -> Result<String, FaultError> {
    let id = commands::run(cluster, node, &["cat", "/proc/sys/kernel/random/boot_id"]).await?;
    Ok(id.trim().to_owned())
}
