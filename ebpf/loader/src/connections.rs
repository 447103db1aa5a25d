//! Connections of a load whose set of maps is pinned nowhere any more.
//!
//! Pins are removed, hidden by a mount, or laid out by another version, while programs at devices go on. What they have
//! noted of connections is in the CONNTRACK that they read. A new set that takes this very map keeps them: a connection whose
//! next packet finds no flow is ended ([`ebpf/DATAPATH.md`](../../DATAPATH.md), 5.6).

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use lb_abi::Meta;

use crate::{HeldProgram, Load, LoaderError, MapName, device, node_config, sys::map};

/// The CONNTRACK of the last load that is attached to a device of the calling thread's network namespace, was made for it,
/// and lays that map out as this version does. `None`: there is no such load, or the kernel does not tell network
/// namespaces apart (before 5.14).
pub(crate) fn in_use() -> Result<Option<OwnedFd>, LoaderError> {
    let namespace = node_config::namespace_cookie()?;
    if namespace == 0 {
        return Ok(None);
    }
    let attached = device::scan::attachments(&mut device::netlink()?, None)?;
    let ids: BTreeSet<u32> = attached.into_iter().map(|found| found.program_id).collect();
    let mut found: Vec<(HeldProgram, Load)> = Vec::new();
    for id in ids {
        let Some(program) = HeldProgram::find(id)? else {
            continue;
        };
        if let Some(load) = program.load()?
            && load.abi == Meta::CURRENT.abi
        {
            found.push((program, load));
        }
    }
    // Not every program of a load uses CONFIG.
    let here: BTreeSet<u32> = found
        .iter()
        .filter(|(_, load)| load.node == Some(namespace))
        .map(|(_, load)| load.meta_id)
        .collect();
    found.retain(|(_, load)| here.contains(&load.meta_id));
    found.sort_by_key(|(program, _)| program.loaded_at());
    for id in found.iter().rev().flat_map(|(program, _)| program.map_ids()) {
        if let Some(flows) = flows(*id).map_err(LoaderError::kernel("look at a map of connections"))? {
            return Ok(Some(flows));
        }
    }
    Ok(None)
}

/// A map, if it is laid out as CONNTRACK, which no other of ours is.
fn flows(id: u32) -> io::Result<Option<OwnedFd>> {
    let opened = match map::open(id, 0) {
        // Its programs have just gone, or its owner forbids writing it, which is no map of ours.
        Err(error) if [Some(libc::ENOENT), Some(libc::EPERM)].contains(&error.raw_os_error()) => {
            return Ok(None);
        }
        opened => opened?,
    };
    let found = map::describe(opened.as_fd())?.layout;
    Ok(MapName::Conntrack.fits(found).then_some(opened))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_map_is_laid_out_as_flows() {
        let alike = MapName::PINNED
            .into_iter()
            .filter(|name| MapName::Conntrack.fits(name.layout()));
        assert_eq!(alike.collect::<Vec<_>>(), [MapName::Conntrack]);
    }
}
