//! Every start leaves its programs behind.
//!
//! The bug of an agent that attaches again at each start, in addition to the links that it adopts, without checking
//! what is attached. All programs read the same maps, so clients are served, at higher costs. But a program that
//! translates a connection forgets it if it runs once more, for what has become a connection to a backend: sockets show
//! backends as their peers. So the agent's own probe fails, and it is never ready.

use std::{io::ErrorKind, path::Path};

use doctor::{EvictionError, Inventory};
use lb_loader::{ALLOW_MULTI, HeldProgram, Hook, LoaderError, attach_legacy, programs_attached};
use reference_agent::datapath::Datapath;

use crate::datapath_decorator::{Flaw, Flawed};

/// The production agent's datapath; at each start, `again` attaches its programs once more.
pub fn growing<D: Datapath, A: FnOnce() -> Result<(), LoaderError> + Send>(
    inner: D,
    again: A,
) -> Flawed<D, Growing<A>> {
    Flawed::new(inner, Growing { again: Some(again) })
}

/// The flaw.
#[derive(Debug)]
pub struct Growing<A> {
    /// `None` once it was called.
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

/// Attaches the programs at each hook of a cgroup once more, without a link; programs that are attached so already
/// stay.
///
/// # Errors
/// The kernel returns an error.
pub fn attach_again(cgroup: &Path) -> Result<(), LoaderError> {
    for hook in Hook::ALL {
        for id in programs_attached(cgroup, hook, false)? {
            match attach_legacy(cgroup, hook, &HeldProgram::by_id(id)?, ALLOW_MULTI) {
                // The kernel does not attach a program twice in this way.
                Err(LoaderError::Kernel { source, .. }) if source.kind() == ErrorKind::InvalidInput => {}
                attached => attached?,
            }
        }
    }
    Ok(())
}
