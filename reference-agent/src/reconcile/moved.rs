//! UDP frontends that pass to another service port, or to none.
//!
//! A service port may have several numbers in turn, so that the owner of each frontend is remembered beside FRONTENDS. The
//! owner of an earlier start is known only if a service port claims an adopted number.

use std::collections::BTreeSet;

use lb_abi::{FrontendKey, ServiceId, UDP};

use super::{
    departed::Bounded,
    ports::{PortRef, Ports, Wanted},
    shadow::Shadow,
};
use crate::{
    endpoint_address::{TransportAddress, node_port},
    hash::HashMap,
    maps::LbMaps,
};

/// A UDP frontend that has passed to another service port, or to none. Its flows and connected sockets would last as long
/// as both ends send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedFrontend {
    /// The frontend; a node port has the unspecified address.
    pub frontend: TransportAddress,
    /// The backends that clients of it may be connected to now; empty if nothing is served there.
    pub backends: BTreeSet<TransportAddress>,
}

/// The owners of UDP frontends in the map, and the frontends that have moved.
#[derive(Debug, Default)]
pub(super) struct Owners {
    of: HashMap<FrontendKey, PortRef>,
    moved: BTreeSet<FrontendKey>,
}

impl Owners {
    /// A service port has put a frontend. `answered`: it was served before.
    pub(super) fn put(&mut self, key: FrontendKey, by: &PortRef, answered: bool) {
        if key.protocol == UDP && self.of.insert(key, by.clone()).as_ref() != Some(by) && answered {
            self.moved.insert(key);
        }
    }

    /// A service port has claimed an adopted number: frontends that name it already were its own.
    pub(super) fn claim<M: LbMaps>(
        &mut self,
        shadow: &Shadow<M>,
        wanted: &Wanted,
        id: ServiceId,
        by: &PortRef,
    ) {
        for &key in wanted.keys().filter(|key| key.protocol == UDP) {
            let found = shadow.frontend(&key);
            if found.is_some_and(|found| found.internal == id || found.external == id) {
                self.of.entry(key).or_insert_with(|| by.clone());
            }
        }
    }

    /// A frontend has been deleted.
    pub(super) fn deleted(&mut self, key: FrontendKey) {
        if key.protocol == UDP {
            self.of.remove(&key);
            self.moved.insert(key);
        }
    }

    /// The frontends that have moved since the last call.
    pub(super) fn take<M: LbMaps>(&mut self, ports: &Ports, shadow: &Shadow<M>) -> Bounded<MovedFrontend> {
        let mut moved = Bounded::default();
        for key in std::mem::take(&mut self.moved) {
            if let Some(frontend) = TransportAddress::from_frontend_key(key) {
                let backends = self.backends_at(key, ports, shadow);
                moved.add(MovedFrontend { frontend, backends });
            }
        }
        moved
    }

    /// The backends at a frontend now, which may be those of a node port.
    fn backends_at<M: LbMaps>(
        &self,
        key: FrontendKey,
        ports: &Ports,
        shadow: &Shadow<M>,
    ) -> BTreeSet<TransportAddress> {
        let key = match shadow.frontend(&key).is_some() || !shadow.is_node_address(key.address) {
            true => key,
            false => node_port(key),
        };
        let serving = self.of.get(&key).map_or(&[][..], |at| ports.serving(at));
        serving
            .iter()
            .filter_map(|&id| shadow.backend(id))
            .map(|backend| backend.address)
            .collect()
    }
}
