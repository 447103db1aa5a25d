//! Answers to unconnected sockets show the backend, not the frontend that was asked.
//!
//! What an agent does that forgets the hooks of the way back: datagrams reach their backend, and the client sees the backend's
//! address on the answer.

use std::path::Path;

use doctor::{EvictionError, Inventory, Place, Scope, evict, inventory};
use lb_loader::{Hook, LoaderError};
use reference_agent::datapath::Datapath;

use crate::flawed::{Flaw, Flawed};

/// The hooks without programs.
const RECVMSG: [Hook; 2] = [Hook::Recvmsg4, Hook::Recvmsg6];

/// The production agent's datapath, from which `detach` takes programs each time that it has attached them.
pub fn replies_untranslated<D: Datapath, E: Fn() -> Result<(), EvictionError> + Send>(
    inner: D,
    detach: E,
) -> Flawed<D, RepliesUntranslated<E>> {
    Flawed::new(inner, RepliesUntranslated { detach })
}

/// Its flaw.
#[derive(Debug)]
pub struct RepliesUntranslated<E> {
    detach: E,
}

impl<D: Datapath, E: Fn() -> Result<(), EvictionError> + Send> Flaw<D> for RepliesUntranslated<E> {
    type Maps = D::Maps;

    fn maps(&self, inner: &D) -> D::Maps {
        inner.maps()
    }

    fn attach(&mut self, inner: &mut D) -> Result<(), EvictionError> {
        inner.attach()?;
        (self.detach)()
    }

    fn unattached(&self, inner: &D) -> Result<Vec<Hook>, LoaderError> {
        let mut hooks = inner.unattached()?;
        hooks.retain(|hook| !RECVMSG.contains(hook));
        Ok(hooks)
    }

    fn leftovers(&self, inner: &D) -> Result<Inventory, LoaderError> {
        inner.leftovers()
    }
}

/// Detaches what runs at a cgroup when sockets that are not connected receive.
///
/// # Errors
/// What the kernel said.
pub fn detach_recvmsg(cgroup: &Path) -> Result<(), EvictionError> {
    let scope = Scope {
        cgroup: cgroup.to_owned(),
        bpffs: None,
        current: Vec::new(),
    };
    for found in inventory(&scope)?.attachments {
        if let Place::Cgroup { path, .. } = &found.place
            && path.as_deref() == Some(cgroup)
            && RECVMSG.iter().any(|hook| found.program.name == hook.name())
        {
            evict(&found, true)?;
        }
    }
    Ok(())
}
