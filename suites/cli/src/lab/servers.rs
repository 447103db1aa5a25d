//! `--apiservers`, `--advertise-shared` and `--control-plane`: the control plane of a new lab.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use lab::{Advertise, ControlPlane};

/// How many API servers, and what they say of themselves.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ControlPlaneArgs {
    /// How many API servers, 1 to 5, over one store; nodes ask them by turns
    #[arg(long = "apiservers", value_name = "NUMBER", default_value_t = 1)]
    servers: u8,
    /// All API servers advertise the address of a load balancer in front of them: default/kubernetes has one endpoint,
    /// which whoever stops takes away from all; nodes ask the load balancer
    #[arg(long)]
    advertise_shared: bool,
    /// A folder with etcd, kube-apiserver and kube-controller-manager, which run instead of our own control plane
    #[arg(long = "control-plane", value_name = "FOLDER")]
    programs: Option<PathBuf>,
}

impl ControlPlaneArgs {
    /// What they say.
    ///
    /// # Errors
    /// The folder is not there.
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
/// It is not there.
pub(crate) fn programs(folder: &Path) -> anyhow::Result<PathBuf> {
    let found = folder.canonicalize();
    found.with_context(|| {
        format!(
            "failed to find the folder {} of --control-plane",
            folder.display()
        )
    })
}
