//! The programs at the node's cgroup: attached, and alone.
//!
//! [`Datapath`] is a seam: `chaos/mutants` puts its bugs around [`KernelDatapath`] there.

use lb_loader::{Attachment, Hook, LoaderError, Options, Ownership};

use crate::maps::{
    LbMaps,
    kernel::{KernelMaps, Shared},
};

/// Maps and hooks of one node.
pub trait Datapath: Send {
    /// Its maps.
    type Maps: LbMaps;

    /// The maps.
    fn maps(&self) -> Self::Maps;

    /// Whether the maps are those of an earlier start, with their contents.
    fn adopted(&self) -> bool;

    /// Attaches the programs to the node's cgroup. Idempotent: what is attached stays.
    ///
    /// # Errors
    /// What the kernel said.
    fn attach(&mut self) -> Result<(), LoaderError>;

    /// Hooks of the cgroup at which none of the programs is attached.
    ///
    /// # Errors
    /// What the kernel said.
    fn unattached(&self) -> Result<Vec<Hook>, LoaderError>;

    /// What an earlier load of this agent has left attached to the cgroup.
    ///
    /// # Errors
    /// What the kernel said.
    fn stale(&self) -> Result<Vec<Attachment>, LoaderError>;

    /// Ends one of those.
    ///
    /// # Errors
    /// What the kernel said.
    fn evict(&self, stale: &Attachment) -> Result<(), LoaderError>;
}

/// The kernel's.
#[derive(Debug)]
pub struct KernelDatapath {
    shared: Shared,
    adopted: bool,
}

impl KernelDatapath {
    /// Opens the pinned maps, or makes new ones, and loads the programs. Attaches nothing.
    ///
    /// # Errors
    /// As [`lb_loader::Datapath::open`].
    pub fn open(options: &Options) -> Result<Self, LoaderError> {
        let datapath = lb_loader::Datapath::open(options)?;
        let adopted = datapath.adopted();
        Ok(Self {
            shared: Shared::new(datapath),
            adopted,
        })
    }
}

impl Datapath for KernelDatapath {
    type Maps = KernelMaps;

    fn maps(&self) -> KernelMaps {
        KernelMaps::new(self.shared.clone())
    }

    fn adopted(&self) -> bool {
        self.adopted
    }

    fn attach(&mut self) -> Result<(), LoaderError> {
        for attached in self.shared.lock().attach()? {
            let lb_loader::Attached {
                hook,
                program_id,
                link_id,
                updated,
            } = attached;
            tracing::info!(%hook, program_id, link_id, updated, "attached");
        }
        Ok(())
    }

    fn unattached(&self) -> Result<Vec<Hook>, LoaderError> {
        let attachments = self.shared.lock().scan()?;
        let ours = |hook: &Hook| {
            attachments
                .iter()
                .any(|found| found.hook == *hook && found.ownership == Ownership::Current)
        };
        Ok(Hook::ALL.into_iter().filter(|hook| !ours(hook)).collect())
    }

    fn stale(&self) -> Result<Vec<Attachment>, LoaderError> {
        let attachments = self.shared.lock().scan()?;
        Ok(attachments
            .into_iter()
            .filter(|found| found.ownership == Ownership::Earlier)
            .collect())
    }

    fn evict(&self, stale: &Attachment) -> Result<(), LoaderError> {
        self.shared.lock().evict(stale)
    }
}
