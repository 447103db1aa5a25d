//! Every start leaves its programs behind.
//!
//! What an agent does that attaches anew at each start, beside the links that it adopts, and never looks at what is there:
//! all of them read the same maps, so nothing goes wrong but the number of programs, and with them what a connection costs.

use std::{io::ErrorKind, path::Path};

use doctor::{EvictionError, Inventory};
use lb_loader::{ALLOW_MULTI, HeldProgram, Hook, LoaderError, attach_legacy, programs_attached};
use reference_agent::datapath::Datapath;

use crate::flawed::{Flaw, Flawed};

/// The production agent's datapath, whose programs `again` attaches once more at each start.
pub fn growing<D: Datapath, A: FnOnce() -> Result<(), LoaderError> + Send>(
    inner: D,
    again: A,
) -> Flawed<D, Growing<A>> {
    Flawed::new(inner, Growing { again: Some(again) })
}

/// Its flaw.
#[derive(Debug)]
pub struct Growing<A> {
    /// Gone when it was done.
    again: Option<A>,
}

impl<D: Datapath, A: FnOnce() -> Result<(), LoaderError> + Send> Flaw<D> for Growing<A> {
    type Maps = D::Maps;

    fn maps(&self, inner: &D) -> D::Maps {
        inner.maps()
    }

    fn attach(&mut self, inner: &mut D) -> Result<(), EvictionError> {
        inner.attach()?;
        Ok(self.again.take().map_or(Ok(()), |again| again())?)
    }

    fn leftovers(&self, _inner: &D) -> Result<Inventory, LoaderError> {
        Ok(Inventory::default())
    }
}

/// Attaches what runs at each hook of a cgroup once more, without a link; what is attached so already stays so.
///
/// # Errors
/// What the kernel said.
pub fn attach_again(cgroup: &Path) -> Result<(), LoaderError> {
    for hook in Hook::ALL {
        for id in programs_attached(cgroup, hook, false)? {
            match attach_legacy(cgroup, hook, &HeldProgram::by_id(id)?, ALLOW_MULTI) {
                // The kernel does not attach one program twice so.
                Err(LoaderError::Kernel { source, .. }) if source.kind() == ErrorKind::InvalidInput => {}
                attached => attached?,
            }
        }
    }
    Ok(())
}
