//! Takes the datapath away.

use std::path::Path;

use clap::Args;

use super::{Bpffs, Cgroup};

/// What to clean.
#[derive(Debug, Args)]
pub struct Cleanup {
    #[command(flatten)]
    cgroup: Cgroup,
    #[command(flatten)]
    bpffs: Bpffs,
}

impl Cleanup {
    /// The bpffs below whose folder `plumbline` the pins are.
    #[must_use]
    pub fn bpffs(&self) -> &Path {
        &self.bpffs.bpffs
    }
}

pub(super) fn cleanup(
    Cleanup {
        cgroup: Cgroup { cgroup },
        bpffs: Bpffs { bpffs },
    }: &Cleanup,
) -> anyhow::Result<()> {
    let lb_loader::Cleanup {
        detached,
        disarmed,
        unpinned,
        blind,
    } = lb_loader::cleanup(bpffs, cgroup)?;
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
    if detached.is_empty() && disarmed.is_empty() && unpinned.is_empty() {
        println!("nothing to clean");
    }
    for blind in &blind {
        println!("{blind}");
    }
    Ok(())
}
