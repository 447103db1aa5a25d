//! `--apiservers`, `--advertise-shared` and `--control-plane`: the control plane of a new lab.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use lab::{Advertise, ControlPlane};

/// The API servers, and the addresses that they advertise.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ControlPlaneArgs {
    /// Number of API servers over one store, 1 to 5; nodes use them in turn
    #[arg(long = "apiservers", value_name = "NUMBER", default_value_t = 1)]
    servers: u8,
    /// All API servers advertise the address of a load balancer in front of them. default/kubernetes then has one
    /// endpoint: stopping any server removes it for all. Nodes connect to the load balancer
    #[arg(long)]
    advertise_shared: bool,
    /// Folder with etcd, kube-apiserver and kube-controller-manager, which run instead of the lab's own control plane
    #[arg(long = "control-plane", value_name = "FOLDER")]
    programs: Option<PathBuf>,
}

impl ControlPlaneArgs {
    /// The chosen control plane.
    ///
    /// # Errors
    /// The folder is missing.
    pub(crate) fn control_plane(&self) -> anyhow::Result<ControlPlane> {
        Ok(ControlPlane {
            servers: self.servers,
            advertise: if self.advertise_shared {
                Advertise::Shared
            } else {
                Advertise::Own
            },
            programs: self.programs.as_deref().map(programs).transpose()?,
        })
    }
}

/// The folder of --control-plane.
///
/// # Errors
/// The folder is missing.
pub(crate) fn programs(folder: &Path) -> anyhow::Result<PathBuf> {
    let found = folder.canonicalize();
    found.with_context(|| {
        format!(
            "failed to find the folder {} of --control-plane",
            folder.display()
        )
    })
}
