//! What a new set of maps takes over from the one that it replaces, where ids are given anew.
//!
//! CONNTRACK is taken over as it is, the very map, so that no connection is lost while programs are switched. Its entries
//! name service ports and backends by ids that mean others in the new set, or nothing. Which ones they are the entry
//! itself says, by its addresses: so they are renumbered by the new set alone, once the new programs run. Until then a
//! UDP flow may find its backend gone and choose once more; TCP and SCTP go on. AFFINITY has nothing but ids; its
//! entries are copied, renumbered by both sets.

use std::{collections::HashMap, path::Path};

use lb_abi::{
    Affinity, AffinityKey, Backend, BackendId, Flow, Frontend, FrontendKey, ServiceId, Tuple, address_flags,
    flow_flags,
};

use super::{Maps, View, compatibility};
use crate::{LoaderError, MapError, MapName, sys::READ_ONLY};

/// Gives every flow the ids that its service port and backend have in these maps; 0, which is no id, where there is
/// none. Returns how many had others. A flow that passes meanwhile may lose what is seen of it in that moment.
///
/// Of a frontend with two service ports, the flow gets that for clients outside if it is an SNAT, otherwise that for
/// those of this node: which it was is not known, and decides only on what it counts.
pub(crate) fn renumber_flows(maps: &Maps) -> Result<usize, MapError> {
    let numbers = Numbers::new(maps)?;
    let mut changed = 0;
    for (tuple, _) in maps.conntrack.entries()? {
        // Read once more: it may be another flow by now.
        let Some(flow) = maps.conntrack.get(&tuple)? else {
            continue;
        };
        let renumbered = numbers.renumbered(&tuple, flow);
        if renumbered != flow && maps.conntrack.replace(&tuple, &renumbered)? {
            changed += 1;
        }
    }
    Ok(changed)
}

/// Copies what clients with affinity have from the set in a folder; returns how many. Those whose service port or
/// backend is no more, or who have chosen again already, are left out; without a readable set, all are.
pub(crate) fn copy_affinity(from: &Path, maps: &Maps) -> Result<usize, LoaderError> {
    let Some(old) = Old::open(from)? else {
        return Ok(0);
    };
    let services = old.services(maps)?;
    let backends = old.backends(maps)?;
    let mut copied = 0;
    for (key, affinity) in old.affinity.entries()? {
        let (Some(service), Some(backend)) = (services.get(&key.service), backends.get(&affinity.backend))
        else {
            continue;
        };
        let key = AffinityKey {
            service: *service,
            ..key
        };
        let affinity = Affinity {
            backend: *backend,
            ..affinity
        };
        if maps.affinity.get(&key)?.is_none() {
            maps.affinity.put(&key, &affinity)?;
            copied += 1;
        }
    }
    Ok(copied)
}

/// What tells a backend from others: not its flags, which may change.
fn identity(backend: &Backend) -> FrontendKey {
    FrontendKey {
        address: backend.address,
        port: backend.port,
        protocol: backend.protocol,
        pad: 0,
    }
}

/// Ids by addresses.
struct Numbers<'a> {
    backends: HashMap<FrontendKey, BackendId>,
    frontends: HashMap<FrontendKey, Frontend>,
    maps: &'a Maps,
}

impl<'a> Numbers<'a> {
    fn new(maps: &'a Maps) -> Result<Self, MapError> {
        let backends = maps.backends.entries()?.into_iter();
        Ok(Self {
            backends: backends.map(|(id, backend)| (identity(&backend), id)).collect(),
            frontends: maps.frontends.entries()?.into_iter().collect(),
            maps,
        })
    }

    fn renumbered(&self, tuple: &Tuple, flow: Flow) -> Flow {
        let (client, server) = if flow.flags & flow_flags::REPLY == 0 {
            (*tuple, flow.to)
        } else {
            (flow.to.inverse(), tuple.inverse())
        };
        let destination = |tuple: Tuple| FrontendKey {
            address: tuple.destination,
            port: tuple.destination_port,
            protocol: tuple.protocol,
            pad: 0,
        };
        let frontend = self.frontend(destination(client));
        let service = frontend.map_or(0, |frontend| match (frontend.internal, frontend.external) {
            (only, 0) | (0, only) => only,
            (_, external) if flow.flags & flow_flags::SNAT != 0 => external,
            (internal, _) => internal,
        });
        let backend = self.backends.get(&destination(server));
        Flow {
            service,
            backend: backend.copied().unwrap_or(0),
            ..flow
        }
    }

    /// As the programs find it: exact, or a node port.
    fn frontend(&self, key: FrontendKey) -> Option<Frontend> {
        if let Some(frontend) = self.frontends.get(&key) {
            return Some(*frontend);
        }
        let flags = self.maps.addresses.get(&key.address).ok()??;
        let unspecified = if key.address.is_v4() {
            lb_abi::Address::UNSPECIFIED_V4
        } else {
            lb_abi::Address::UNSPECIFIED_V6
        };
        let node_port = FrontendKey {
            address: unspecified,
            ..key
        };
        (flags & address_flags::NODE != 0)
            .then(|| self.frontends.get(&node_port).copied())
            .flatten()
    }
}

/// What is read of the set that is replaced.
struct Old {
    frontends: View<FrontendKey, Frontend>,
    backends: View<BackendId, Backend>,
    affinity: View<AffinityKey, Affinity>,
}

impl Old {
    /// `None`: one of them is not there, or is laid out in another way.
    fn open(folder: &Path) -> Result<Option<Self>, LoaderError> {
        let names = [MapName::Frontends, MapName::Backends, MapName::Affinity];
        if !compatibility::is_current(folder) || names.iter().any(|name| !compatibility::fits(folder, *name))
        {
            return Ok(None);
        }
        let open = |name| compatibility::open(folder, name, READ_ONLY);
        Ok(Some(Self {
            frontends: View::new(MapName::Frontends, open(MapName::Frontends)?),
            backends: View::new(MapName::Backends, open(MapName::Backends)?),
            affinity: View::new(MapName::Affinity, open(MapName::Affinity)?),
        }))
    }

    /// The service port of the same frontend.
    fn services(&self, maps: &Maps) -> Result<HashMap<ServiceId, ServiceId>, MapError> {
        let mut services = HashMap::new();
        for (key, old) in self.frontends.entries()? {
            if let Some(new) = maps.frontends.get(&key)? {
                services.insert(old.internal, new.internal);
                services.insert(old.external, new.external);
            }
        }
        // Of a frontend that has only one of the two.
        services.retain(|old, new| *old != 0 && *new != 0);
        Ok(services)
    }

    /// The backend of the same address.
    fn backends(&self, maps: &Maps) -> Result<HashMap<BackendId, BackendId>, MapError> {
        let new = Numbers::new(maps)?.backends;
        let old = self.backends.entries()?.into_iter();
        Ok(old
            .filter_map(|(id, backend)| Some((id, *new.get(&identity(&backend))?)))
            .collect())
    }
}
