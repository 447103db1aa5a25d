//! Answers to unconnected sockets show the backend instead of the dialled frontend.
//!
//! The bug of an agent without programs at the recvmsg hooks: datagrams reach their backend, and the client sees the
//! backend's address as the source of the answer.

use std::path::Path;

use doctor::{EvictionError, Inventory, Place, Scope, evict, inventory};
use lb_loader::{Hook, LoaderError};
use reference_agent::datapath::Datapath;

use crate::datapath_decorator::{Flaw, Flawed};

/// The hooks without programs.
const RECVMSG: [Hook; 2] = [Hook::Recvmsg4, Hook::Recvmsg6];

/// The production agent's datapath; `detach` removes programs each time after they were attached.
pub fn replies_untranslated<D: Datapath, E: Fn() -> Result<(), EvictionError> + Send>(
    inner: D,
    detach: E,
) -> Flawed<D, RepliesUntranslated<E>> {
    Flawed::new(inner, RepliesUntranslated { detach })
}

/// The flaw.
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

/// Detaches programs at a cgroup that run when unconnected sockets receive.
///
/// # Errors
/// The kernel returns an error.
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
