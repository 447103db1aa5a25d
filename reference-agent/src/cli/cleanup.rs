//! Removes the datapath.

use std::path::Path;

use clap::Args;

use super::{Bpffs, Cgroup};
use crate::pod_network::{CniFolder, remove};

/// The datapath to remove.
#[derive(Debug, Args)]
pub struct Cleanup {
    #[command(flatten)]
    cgroup: Cgroup,
    #[command(flatten)]
    bpffs: Bpffs,
    #[command(flatten)]
    folder: CniFolder,
}

impl Cleanup {
    /// The bpffs below whose folder `plumbline` the pins are.
    #[must_use]
    pub fn bpffs(&self) -> &Path {
        &self.bpffs.bpffs
    }
}

#[tokio::main]
pub(super) async fn cleanup(
    Cleanup {
        cgroup: Cgroup { cgroup },
        bpffs: Bpffs { bpffs },
        folder: CniFolder { cni_conf_dir },
    }: &Cleanup,
) -> anyhow::Result<()> {
    let doctor::Cleanup {
        detached,
        disarmed,
        unpinned,
        blind,
    } = doctor::cleanup(bpffs, cgroup)?;
    for found in &detached {
        println!(
            "detached program {} from {}, {}",
            found.program.id, found.place, found.manner
        );
    }
    for program in &disarmed {
        println!(
            "program {} ({}) is still loaded, and leaves everything alone from now on",
            program.id, program.name
        );
    }
    for path in &unpinned {
        println!("removed {}", path.display());
    }
    let pod_network = remove(cni_conf_dir).await;
    for what in pod_network.iter().flatten() {
        println!("{what}");
    }
    let nothing = pod_network.as_ref().is_ok_and(Vec::is_empty);
    if nothing && detached.is_empty() && disarmed.is_empty() && unpinned.is_empty() {
        println!("nothing to clean");
    }
    for blind in &blind {
        println!("{blind}");
    }
    Ok(pod_network.map(drop)?)
}
