//! The maps, read as the programs do.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
};

use lb_abi::{Address, Backend, BackendId, Frontend, FrontendKey, ServiceId, UDP, address_flags};
use lb_loader::LoaderError;

use super::Connections;
use crate::endpoint_address::node_port;

/// UDP backends and frontends, and the node's addresses.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    pub(super) backends: HashMap<BackendId, SocketAddr>,
    pub(super) frontends: HashMap<FrontendKey, Frontend>,
    pub(super) nodes: HashSet<Address>,
}

impl Lookup {
    /// Reads the maps.
    pub(super) fn read(connections: &mut impl Connections) -> Result<Self, LoaderError> {
        let backends = connections.backends()?.into_iter();
        let frontends = connections.frontends()?.into_iter();
        let addresses = connections.addresses()?.into_iter();
        let nodes = addresses.filter(|(_, flags)| flags & address_flags::NODE != 0);
        Ok(Self {
            backends: backends
                .filter(|(_, backend)| backend.protocol == UDP)
                .map(|(id, backend)| (id, address(&backend)))
                .collect(),
            frontends: frontends.filter(|(key, _)| key.protocol == UDP).collect(),
            nodes: nodes.map(|(address, _)| address).collect(),
        })
    }

    /// The frontend of a client's destination ("Finding a frontend", DATAPATH.md).
    pub(super) fn frontend(&self, asked: &FrontendKey) -> Option<&Frontend> {
        let address = match asked.address {
            v4 if v4.is_v4() && (v4.is_loopback() || v4 == Address::UNSPECIFIED_V4) => Address::LOOPBACK_V4,
            Address::UNSPECIFIED_V6 => Address::LOOPBACK_V6,
            other => other,
        };
        let by_port = || self.frontends.get(&node_port(*asked));
        let exact = self.frontends.get(asked);
        exact.or_else(|| by_port().filter(|_| self.nodes.contains(&address)))
    }

    /// Whether a client's destination leads to a service port.
    pub(super) fn leads_to(&self, asked: &FrontendKey, service: ServiceId) -> bool {
        let found = self.frontend(asked);
        found.is_some_and(|found| [found.internal, found.external].contains(&service))
    }
}

pub(super) fn address(backend: &Backend) -> SocketAddr {
    SocketAddr::new(backend.address.into(), backend.port.get())
}
