//! The maps, read as the programs do, and when they are asked.
//!
//! A walk over CONNTRACK takes long on a busy node. A frontend that passes to a Service meanwhile opens flows at once:
//! judged by what the maps had when the walk began, those would end, too. So it is with a backend that comes back.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    net::SocketAddr,
};

use lb_abi::{Address, Backend, BackendId, Frontend, FrontendKey, Service, ServiceId, SlotKey, UDP};
use lb_loader::LoaderError;

use super::LiveMaps;
use crate::endpoint_address::node_port;

/// How often the slots of one service port are read, at most: that of a large Service which changes all the time would be read for
/// each of its flows. After that the last reading decides.
const READINGS: u32 = 64;

/// The backends that a service port sends to, by its slots.
#[derive(Debug, Default)]
struct Members {
    /// When they were read: a generation's slots stay as they are while it is current. All zero: not yet.
    of: Service,
    backends: HashSet<SocketAddr>,
    readings: u32,
}

/// What the maps have now.
#[derive(Debug)]
pub(super) struct Lookup<'a, L> {
    maps: &'a L,
    /// The first that could not be read. Nothing is stale by what is not known.
    failed: RefCell<Option<LoaderError>>,
    members: RefCell<HashMap<ServiceId, Members>>,
}

impl<'a, L: LiveMaps> Lookup<'a, L> {
    /// By a node's maps.
    pub(super) fn new(maps: &'a L) -> Self {
        Self {
            maps,
            failed: RefCell::default(),
            members: RefCell::default(),
        }
    }

    /// The frontend at exactly this address and port.
    fn exactly(&self, key: &FrontendKey) -> Option<Frontend> {
        self.read(self.maps.frontend(key)).flatten()
    }

    /// Whether there is a frontend at exactly this address and port.
    pub(super) fn has_frontend(&self, key: &FrontendKey) -> bool {
        self.exactly(key).is_some()
    }

    /// Whether a client's destination is one of these frontends: that of its address, or the node port of its number.
    pub(super) fn is_one_of(&self, asked: &FrontendKey, known: impl Fn(&FrontendKey) -> bool) -> bool {
        // A frontend at the address comes before the node port of that number.
        known(asked) || (known(&node_port(*asked)) && !self.has_frontend(asked))
    }

    /// The frontend of a client's destination ("Finding a frontend", DATAPATH.md).
    pub(super) fn frontend(&self, asked: &FrontendKey) -> Option<Frontend> {
        let address = match asked.address {
            v4 if v4.is_v4() && (v4.is_loopback() || v4 == Address::UNSPECIFIED_V4) => Address::LOOPBACK_V4,
            Address::UNSPECIFIED_V6 => Address::LOOPBACK_V6,
            other => other,
        };
        let is_nodes = || self.read(self.maps.is_nodes(&address)).unwrap_or_default();
        let by_port = || self.exactly(&node_port(*asked)).filter(|_| is_nodes());
        self.exactly(asked).or_else(by_port)
    }

    /// Whether a client's destination leads to another service port than this one, or to none.
    pub(super) fn leads_elsewhere(&self, asked: &FrontendKey, service: ServiceId) -> bool {
        let found = self.frontend(asked);
        let leads_here = found.is_some_and(|found| [found.internal, found.external].contains(&service));
        !leads_here && self.is_known()
    }

    /// Whether no backend has this number now, or another one has. `backend`: its address; `None`: any will do.
    pub(super) fn is_others(&self, id: BackendId, backend: Option<SocketAddr>) -> bool {
        let found = self.read(self.maps.backend(id)).flatten();
        let found = found.filter(|found| found.protocol == UDP);
        let there = found.is_some_and(|found| backend.is_none_or(|backend| address(&found) == backend));
        !there && self.is_known()
    }

    /// Whether a client that asked this frontend of a service port is not sent to this backend any more: the backend has no slot
    /// there, or the frontend leads elsewhere (the number is another service port's by now).
    pub(super) fn is_over(&self, asked: &FrontendKey, service: ServiceId, backend: SocketAddr) -> bool {
        let over = !self.sends_to(service, backend) || self.leads_elsewhere(asked, service);
        over && self.is_known()
    }

    /// Whether no socket that asks this frontend is sent to this backend now.
    pub(super) fn has_left_frontend(&self, asked: &FrontendKey, backend: SocketAddr) -> bool {
        let there = self
            .frontend(asked)
            .is_some_and(|found| self.sends_to(found.internal, backend));
        !there && self.is_known()
    }

    /// Whether a service port has a slot with this backend.
    fn sends_to(&self, service: ServiceId, backend: SocketAddr) -> bool {
        let current = || self.read(self.maps.service(service)).flatten();
        let mut members = self.members.borrow_mut();
        let members = members.entry(service).or_default();
        // Slots that are read while the next generation takes over may be gone.
        while let Some(now) = current()
            && now != members.of
            && members.readings < READINGS
        {
            members.backends = self.slots(service, now).collect();
            members.of = now;
            members.readings += 1;
        }
        current().is_some() && members.backends.contains(&backend)
    }

    fn slots(&self, service: ServiceId, now: Service) -> impl Iterator<Item = SocketAddr> {
        let of = move |index| SlotKey {
            service,
            generation: now.generation,
            index,
        };
        (0..now.slots)
            .filter_map(move |index| self.read(self.maps.slot(&of(index))).flatten())
            .filter_map(|id| self.read(self.maps.backend(id)).flatten())
            .map(|backend| address(&backend))
    }

    /// Whether everything could be read.
    ///
    /// # Errors
    /// The kernel's first error.
    pub(super) fn finish(self) -> Result<(), LoaderError> {
        self.failed.into_inner().map_or(Ok(()), Err)
    }

    fn is_known(&self) -> bool {
        self.failed.borrow().is_none()
    }

    fn read<T>(&self, result: Result<T, LoaderError>) -> Option<T> {
        match result {
            Ok(found) => Some(found),
            Err(error) => {
                self.failed.borrow_mut().get_or_insert(error);
                None
            }
        }
    }
}

pub(super) fn address(backend: &Backend) -> SocketAddr {
    SocketAddr::new(backend.address.into(), backend.port.get())
}
