//! Some of the agent's programs are not attached, and it does not miss them.
//!
//! The bug of an agent that serves part of the clients: of the hooks and devices that a client's connection passes, each
//! that is forgotten leaves some kind of socket, or some kind of client, with the frontend's address.

use std::path::Path;

use doctor::{EvictionError, Place, Scope, evict, inventory};
use lb_loader::{DeviceKind, Hook, LoaderError};
use reference_agent::datapath::Datapath;

use crate::datapath_decorator::{Flaw, Flawed};

/// Which programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Those that show the dialled frontend to unconnected sockets: these see the backend.
    Replies,
    /// Those at sockets that dial, and those at the node's own devices: clients in pods are served, by packets, and
    /// processes of the node are not.
    Hosts,
    /// Those at IPv6 sockets that dial, and those at devices of pods: a pod's IPv6 socket that dials an IPv4-mapped
    /// address is not served.
    Mapped,
}

impl Missing {
    /// Hooks without programs.
    const fn hooks(self) -> &'static [Hook] {
        match self {
            Self::Replies => &[Hook::Recvmsg4, Hook::Recvmsg6],
            Self::Hosts => &[Hook::Connect4, Hook::Connect6, Hook::Sendmsg4, Hook::Sendmsg6],
            Self::Mapped => &[Hook::Connect6, Hook::Sendmsg6],
        }
    }

    /// Kinds of devices without programs.
    const fn devices(self) -> &'static [DeviceKind] {
        match self {
            Self::Replies => &[],
            Self::Hosts => &[DeviceKind::Node, DeviceKind::Loopback],
            Self::Mapped => &[DeviceKind::Pod],
        }
    }
}

/// The production agent's datapath; `detach` removes programs at these hooks each time after they were attached.
pub fn programs_missing<D: Datapath, E: Fn(&[Hook]) -> Result<(), EvictionError> + Send>(
    inner: D,
    missing: Missing,
    detach: E,
) -> Flawed<D, ProgramsMissing<E>> {
    Flawed::new(inner, ProgramsMissing { missing, detach })
}

/// The flaw.
#[derive(Debug)]
pub struct ProgramsMissing<E> {
    missing: Missing,
    detach: E,
}

impl<D: Datapath, E: Fn(&[Hook]) -> Result<(), EvictionError> + Send> Flaw<D> for ProgramsMissing<E> {
    type Maps = D::Maps;

    fn maps(&self, inner: &D) -> D::Maps {
        inner.maps()
    }

    fn attach(&mut self, inner: &mut D) -> Result<(), EvictionError> {
        inner.attach()?;
        (self.detach)(self.missing.hooks())
    }

    fn unattached(&self, inner: &D) -> Result<Vec<Hook>, LoaderError> {
        let mut hooks = inner.unattached()?;
        hooks.retain(|hook| !self.missing.hooks().contains(hook));
        Ok(hooks)
    }

    fn attach_device(&mut self, inner: &mut D, device: u32, kind: DeviceKind) -> Result<(), LoaderError> {
        if self.missing.devices().contains(&kind) {
            return Ok(());
        }
        inner.attach_device(device, kind)
    }
}

/// Detaches programs of these hooks at a cgroup.
///
/// # Errors
/// The kernel returns an error.
pub fn detach(cgroup: &Path, hooks: &[Hook]) -> Result<(), EvictionError> {
    let scope = Scope {
        cgroup: cgroup.to_owned(),
        bpffs: None,
        current: Vec::new(),
    };
    for found in inventory(&scope)?.attachments {
        if let Place::Cgroup { path, .. } = &found.place
            && path.as_deref() == Some(cgroup)
            && hooks.iter().any(|hook| found.program.name == hook.name())
        {
            evict(&found, true)?;
        }
    }
    Ok(())
}
