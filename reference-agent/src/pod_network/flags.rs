//! The command line of the pods' network.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Conflist, masquerade::Masquerade, routes};

/// Whether this agent gives pods their network, and how it tells the container runtime.
#[derive(Debug, Args)]
pub struct PodNetworkFlags {
    /// Give pods their network, in a cluster without any other CNI
    ///
    /// Writes a configuration of the CNI plugins ptp, host-local and portmap for this node's podCIDRs, sets routes to those
    /// of other nodes by their InternalIPs, which have to be on the same link, and lets what pods send out of the cluster
    /// come from this node's address. Where somebody else's configuration is there, nothing is set, and /readyz names it.
    /// Without this option a start removes what an earlier one with it has set.
    #[arg(long)]
    pub pod_network: bool,
    /// Where it is told.
    #[command(flatten)]
    pub folder: CniFolder,
}

/// Where container runtimes look for configurations.
#[derive(Debug, Args)]
pub struct CniFolder {
    /// Where the container runtime looks for CNI configurations
    #[arg(long, value_name = "FOLDER", default_value = "/etc/cni/net.d")]
    pub cni_conf_dir: PathBuf,
}

/// Removes what agents have set of the pods' network of the calling thread's network namespace: the file first, so that no
/// pod starts, then routes and masquerading. The result says what was there, one sentence each; nothing is no error.
///
/// # Errors
/// What could not be removed; the rest is.
pub async fn remove(folder: &Path) -> Result<Vec<String>, String> {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    let conflist = Conflist::new(folder);
    match conflist.remove() {
        Ok(true) => done.push(format!("removed {}", conflist.path().display())),
        Ok(false) => {}
        Err(error) => failed.push(format!("{} can't be removed: {error}", conflist.path().display())),
    }
    match routes::remove_all().await {
        Ok(0) => {}
        Ok(count) => done.push(format!("removed {count} routes to pods of other nodes")),
        Err(error) => failed.push(format!("routes to pods of other nodes can't be removed: {error}")),
    }
    match Masquerade::remove() {
        Ok(true) => done.push("removed the masquerading of pods".to_owned()),
        Ok(false) => {}
        Err(error) => failed.push(format!("the masquerading of pods can't be removed: {error}")),
    }
    if failed.is_empty() {
        Ok(done)
    } else {
        Err(failed.join("; "))
    }
}
