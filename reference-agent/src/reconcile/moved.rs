//! UDP frontends that pass to another service port, or to none.
//!
//! FRONTENDS names numbers, and one service port may have several of them in turn; so it is remembered whose each frontend
//! is. Of an earlier start that is only known where a service port takes a number of it over.

use std::collections::BTreeSet;

use lb_abi::{Frontend, FrontendKey, ServiceId, UDP, address_flags};

use super::{
    Reconciler,
    serve::Bounded,
    written::{PortRef, Wanted},
};
use crate::{
    hash::HashMap,
    maps::LbMaps,
    transport::{TransportAddress, node_port},
};

/// A UDP frontend that is another service port's now, or nobody's: flows and connected sockets of the one before would go
/// on for as long as both ends have something to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedFrontend {
    /// Which; a node port by the unspecified address.
    pub frontend: TransportAddress,
    /// The backends that clients of it may be connected to now; none if nobody answers there.
    pub backends: BTreeSet<TransportAddress>,
}

/// Whose the UDP frontends in the map are, and which have moved.
#[derive(Debug, Default)]
pub(super) struct Owners {
    of: HashMap<FrontendKey, PortRef>,
    moved: BTreeSet<FrontendKey>,
}

impl Owners {
    /// A service port has put a frontend. `answered`: clients got somewhere there before.
    pub(super) fn put(&mut self, key: FrontendKey, by: &PortRef, answered: bool) {
        if key.protocol == UDP && self.of.insert(key, by.clone()).as_ref() != Some(by) && answered {
            self.moved.insert(key);
        }
    }

    /// A service port takes over what an earlier start has put for it.
    pub(super) fn take_over(&mut self, key: FrontendKey, by: &PortRef) {
        if key.protocol == UDP {
            self.of.entry(key).or_insert_with(|| by.clone());
        }
    }

    /// A frontend has been deleted.
    pub(super) fn deleted(&mut self, key: FrontendKey) {
        if key.protocol == UDP {
            self.of.remove(&key);
            self.moved.insert(key);
        }
    }
}

impl<M: LbMaps> Reconciler<M> {
    /// A frontend of a service port was put.
    pub(super) fn frontend_put(&mut self, key: FrontendKey, value: Frontend, by: &PortRef) {
        // At an address of this node, a node port may have answered.
        let answered = self.written.frontends.contains_key(&key) || self.is_nodes(&key);
        self.written.placed(key, value);
        self.owners.put(key, by, answered);
    }

    /// A service port has taken a number over: frontends that name it already were its own.
    pub(super) fn own_adopted(&mut self, at: &PortRef, wanted: &Wanted, id: ServiceId) {
        for &key in wanted.keys() {
            let found = self.written.frontends.get(&key);
            if found.is_some_and(|found| found.internal == id || found.external == id) {
                self.owners.take_over(key, at);
            }
        }
    }

    /// The frontends that have moved since this was asked last.
    pub(crate) fn take_moved(&mut self) -> Bounded<MovedFrontend> {
        let mut moved = Bounded::default();
        for key in std::mem::take(&mut self.owners.moved) {
            if let Some(frontend) = TransportAddress::from_frontend_key(key) {
                let backends = self.backends_at(key);
                moved.add(MovedFrontend { frontend, backends });
            }
        }
        moved
    }

    /// The backends behind what answers at a frontend now: it, or a node port.
    fn backends_at(&self, key: FrontendKey) -> BTreeSet<TransportAddress> {
        let key = match self.written.frontends.contains_key(&key) || !self.is_nodes(&key) {
            true => key,
            false => node_port(key),
        };
        let port = self.owners.of.get(&key).and_then(|at| self.written.port(at));
        let serving = port.into_iter().flat_map(|port| &port.serving);
        serving
            .filter_map(|&id| self.written.backends.get(id))
            .map(|backend| backend.address)
            .collect()
    }

    /// Whether node ports answer at the address of a frontend.
    fn is_nodes(&self, key: &FrontendKey) -> bool {
        let flags = self.written.addresses.there().get(&key.address);
        flags.is_some_and(|flags| flags & address_flags::NODE != 0)
    }
}
