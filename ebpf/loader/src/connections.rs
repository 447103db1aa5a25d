//! Connections of a load whose set of maps is pinned nowhere any more.
//!
//! Pins are removed, hidden by a mount, or laid out by somebody else, while programs at devices go on. What they have
//! noted of connections is in the FLOWS that they read. A new set that takes this very map keeps them: a connection whose
//! next packet finds no flow is ended ([`ebpf/DATAPATH.md`](../../DATAPATH.md), 5.6).

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use lb_abi::Meta;

use crate::{
    LoaderError, MapName, device,
    inventory::{
        devices,
        programs::{Known, Programs},
    },
    node,
    sys::map,
};

/// The FLOWS of the last load that is attached to a device of the calling thread's network namespace, was made for it,
/// and lays that map out as this version does. `None`: there is no such load, or the kernel does not tell network
/// namespaces apart (before 5.14).
pub(crate) fn in_use() -> Result<Option<OwnedFd>, LoaderError> {
    let namespace = node::namespace_cookie()?;
    if namespace == 0 {
        return Ok(None);
    }
    let mut programs = Programs::default();
    for attached in devices::attachments(&mut device::netlink()?)? {
        programs.get(attached.program_id)?;
    }
    let here = |known: &&Known| {
        known.meta.is_some_and(|meta| meta.abi == Meta::CURRENT.abi)
            && programs.node(known) == Some(namespace)
    };
    let mut loads: Vec<&Known> = programs.all().filter(here).collect();
    loads.sort_by_key(|known| known.description.loaded_at);
    let maps = loads.iter().rev().flat_map(|known| &known.description.maps);
    for described in maps {
        if let Some(flows) =
            flows(described.id).map_err(LoaderError::kernel("look at a map of connections"))?
        {
            return Ok(Some(flows));
        }
    }
    Ok(None)
}

/// A map, if it is laid out as FLOWS, which no other of ours is.
fn flows(id: u32) -> io::Result<Option<OwnedFd>> {
    let opened = match map::open(id, 0) {
        // Its programs have just gone, or its owner lets nobody write it, which is no map of ours.
        Err(error) if [Some(libc::ENOENT), Some(libc::EPERM)].contains(&error.raw_os_error()) => {
            return Ok(None);
        }
        opened => opened?,
    };
    let found = map::describe(opened.as_fd())?.layout;
    Ok(MapName::Flows.fits(found).then_some(opened))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_map_is_laid_out_as_flows() {
        let alike = MapName::PINNED
            .into_iter()
            .filter(|name| MapName::Flows.fits(name.layout()));
        assert_eq!(alike.collect::<Vec<_>>(), [MapName::Flows]);
    }
}
