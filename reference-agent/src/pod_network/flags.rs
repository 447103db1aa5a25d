//! The command line of the pods' network.

use std::{
    io,
    path::{Path, PathBuf},
};

use clap::Args;

use super::{
    Conflist,
    masquerade::Masquerade,
    routes::{self, RoutesError},
};

/// Whether this agent sets up the pods' network, and the folder of CNI configurations.
#[derive(Debug, Args)]
pub struct PodNetworkFlags {
    /// Give pods their network, in a cluster without any other CNI
    ///
    /// Writes a configuration of the CNI plugins ptp, host-local and portmap for this node's podCIDRs, sets routes to those
    /// of other nodes by their InternalIPs, which have to be on the same link, and lets what pods send out of the cluster
    /// come from this node's address. If another owner's configuration exists, nothing is set, and /readyz names it.
    /// Without this option a start removes what an earlier one with it has set.
    #[arg(long)]
    pub pod_network: bool,
    /// The folder of CNI configurations.
    #[command(flatten)]
    pub folder: CniFolder,
}

/// The folder of CNI configurations.
#[derive(Debug, Args)]
pub struct CniFolder {
    /// Where the container runtime looks for CNI configurations
    #[arg(long, value_name = "FOLDER", default_value = "/etc/cni/net.d")]
    pub cni_conf_dir: PathBuf,
}

/// Why a part of the pods' network could not be removed, or not even be read.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// nf_tables can't be read.
    #[error("nf_tables can't be read: {0}")]
    Read(#[source] io::Error),
    /// The file can't be read.
    #[error("{} can't be read: {source}", path.display())]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file can't be removed.
    #[error("{} can't be removed: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// Routes can't be removed.
    #[error("routes to pods of other nodes can't be removed: {0}")]
    Routes(#[from] RoutesError),
    /// The table can't be removed.
    #[error("the masquerading of pods can't be removed: {0}")]
    Masquerade(#[source] io::Error),
}

/// Everything that could not be removed.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct RemoveErrors(pub Vec<RemoveError>);

impl From<RemoveError> for RemoveErrors {
    fn from(error: RemoveError) -> Self {
        Self(vec![error])
    }
}

/// Removes the pods' network in the calling thread's network namespace: the file first, so that no pod starts, then routes
/// and masquerading. The result: what was removed, one sentence each.
///
/// # Errors
/// What could not be removed; the rest is removed.
pub async fn remove(folder: &Path) -> Result<Vec<String>, RemoveErrors> {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    let conflist = Conflist::new(folder);
    match conflist.remove() {
        Ok(true) => done.push(format!("removed {}", conflist.path().display())),
        Ok(false) => {}
        Err(source) => failed.push(RemoveError::File {
            path: conflist.path(),
            source,
        }),
    }
    match routes::remove_all().await {
        Ok(0) => {}
        Ok(count) => done.push(format!("removed {count} routes to pods of other nodes")),
        Err(error) => failed.push(error.into()),
    }
    match Masquerade::remove() {
        Ok(true) => done.push("removed the masquerading of pods".to_owned()),
        Ok(false) => {}
        Err(error) => failed.push(RemoveError::Masquerade(error)),
    }
    if failed.is_empty() {
        Ok(done)
    } else {
        Err(RemoveErrors(failed))
    }
}
