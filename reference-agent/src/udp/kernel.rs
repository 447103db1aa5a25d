//! The kernel's maps and sockets.

use std::{collections::HashSet, net::SocketAddr, path::PathBuf};

use lb_abi::{
    Address, Backend, BackendId, Chosen, ChosenKey, Flow, Frontend, FrontendKey, Port, Service, ServiceId,
    SlotKey, SocketRevnat, SocketRevnatKey, TCP, Tuple, address_flags,
};
use lb_loader::{
    LoaderError, MapError, Maps, Opening, ServiceView, Table, Terminated, opening, terminate_opening,
    terminate_udp,
};

use super::{Connections, LiveMaps, namespaces::each_namespace};

/// Most calls for the sockets of one backend in one namespace; each ends a million.
const CALLS: usize = 16;

/// Maps with their own descriptors, so that a walk over them does not block the control loop.
#[derive(Debug)]
pub struct KernelConnections {
    flows: Table<Tuple, Flow>,
    chosen: Table<ChosenKey, Chosen>,
    reverse: Table<SocketRevnatKey, SocketRevnat>,
    frontends: Table<FrontendKey, Frontend>,
    addresses: Table<Address, u32>,
    backends: Table<BackendId, Backend>,
    services: ServiceView,
    slots: Table<SlotKey, BackendId>,
    cgroup: PathBuf,
}

impl KernelConnections {
    /// Of a datapath's maps, whose socket programs are at this cgroup.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(maps: &Maps, cgroup: PathBuf) -> Result<Self, MapError> {
        Ok(Self {
            cgroup,
            flows: maps.conntrack.try_clone()?,
            chosen: maps.chosen.try_clone()?,
            reverse: maps.socket_revnat.try_clone()?,
            frontends: maps.frontends.try_clone()?,
            addresses: maps.addresses.try_clone()?,
            backends: maps.backends.try_clone()?,
            services: maps.services.view(),
            slots: maps.slots.try_clone()?,
        })
    }
}

impl LiveMaps for KernelConnections {
    fn frontend(&self, key: &FrontendKey) -> Result<Option<Frontend>, LoaderError> {
        Ok(self.frontends.get(key)?)
    }

    fn is_nodes(&self, address: &Address) -> Result<bool, LoaderError> {
        let flags = self.addresses.get(address)?;
        Ok(flags.is_some_and(|flags| flags & address_flags::NODE != 0))
    }

    fn backend(&self, id: BackendId) -> Result<Option<Backend>, LoaderError> {
        Ok(self.backends.get(&id)?)
    }

    fn service(&self, id: ServiceId) -> Result<Option<Service>, LoaderError> {
        Ok(self.services.get(&id)?)
    }

    fn slot(&self, key: &SlotKey) -> Result<Option<BackendId>, LoaderError> {
        Ok(self.slots.get(key)?)
    }
}

impl Connections for KernelConnections {
    fn end_flows(&self, is_stale: &mut dyn FnMut(&Tuple, &Flow) -> bool) -> Result<usize, LoaderError> {
        Ok(self.flows.retain(|key, flow| !is_stale(key, flow))?)
    }

    fn end_choices(&self, is_stale: &mut dyn FnMut(&ChosenKey, &Chosen) -> bool) -> Result<(), LoaderError> {
        self.chosen.retain(|key, chosen| !is_stale(key, chosen))?;
        Ok(())
    }

    fn sockets(&self, show: &mut dyn FnMut(&SocketRevnatKey, &SocketRevnat)) -> Result<(), LoaderError> {
        Ok(self.reverse.each(show)?)
    }

    fn backends(&self) -> Result<Vec<(BackendId, Backend)>, LoaderError> {
        Ok(self.backends.entries()?)
    }

    fn end_sockets(&self, backend: SocketAddr, cookies: &HashSet<u64>) -> Result<usize, LoaderError> {
        let mut ended = 0;
        each_namespace(&self.cgroup, |namespace| {
            for _ in 0..CALLS {
                let Terminated { ended: now, more, .. } = terminate_udp(namespace, backend, cookies)?;
                ended += now;
                if !more {
                    break;
                }
            }
            Ok::<_, LoaderError>(())
        })?;
        Ok(ended)
    }

    fn end_opening(
        &self,
        is_to_end: &mut dyn FnMut(&SocketRevnatKey, &SocketRevnat) -> bool,
    ) -> Result<usize, LoaderError> {
        let mut ended = 0;
        each_namespace(&self.cgroup, |namespace| {
            let mut to_end = HashSet::new();
            for Opening { cookie, peer } in opening(namespace)? {
                let backend = Backend {
                    address: peer.ip().into(),
                    port: Port::new(peer.port()),
                    protocol: TCP,
                    flags: 0,
                };
                let key = SocketRevnatKey {
                    cookie,
                    backend,
                    pad: 0,
                };
                let remembered = self.reverse.get(&key)?;
                if remembered.is_some_and(|remembered| is_to_end(&key, &remembered)) {
                    to_end.insert(cookie);
                }
            }
            // This lists them again, for which the kernel goes through all TCP sockets of the machine: only where one is to end.
            ended += terminate_opening(namespace, &to_end)?;
            Ok::<_, LoaderError>(())
        })?;
        Ok(ended)
    }
}
