//! A model of the maps, for tests.

extern crate std;

use core::cell::RefCell;
use std::collections::BTreeMap;

use lb_abi::{
    Address, Affinity, AffinityKey, Backend, BackendId, Frontend, FrontendKey, Port, Service, ServiceId,
    SlotKey, TCP, address_flags,
};

use crate::Tables;

/// The maps, and what a program would have done with them.
#[derive(Clone, Default)]
pub(crate) struct Model {
    pub(crate) addresses: BTreeMap<Address, u32>,
    pub(crate) frontends: BTreeMap<FrontendKey, Frontend>,
    pub(crate) services: BTreeMap<ServiceId, Service>,
    pub(crate) slots: BTreeMap<SlotKey, BackendId>,
    pub(crate) backends: BTreeMap<BackendId, Backend>,
    pub(crate) affinity: RefCell<BTreeMap<AffinityKey, Affinity>>,
    pub(crate) random: u32,
    pub(crate) now: u32,
    /// What was called.
    pub(crate) calls: Calls,
}

/// How often something was called, by its name.
pub(crate) type Counts = BTreeMap<&'static str, u32>;

/// Calls that are helper calls where the maps and the packet are the kernel's.
#[derive(Clone, Default)]
pub(crate) struct Calls {
    look_ups: RefCell<Counts>,
    others: RefCell<Counts>,
}

impl Calls {
    /// Counts a look-up in a map.
    pub(crate) fn look_up(&self, map: &'static str) {
        *self.look_ups.borrow_mut().entry(map).or_default() += 1;
    }

    /// Counts another call.
    pub(crate) fn other(&self, what: &'static str) {
        *self.others.borrow_mut().entry(what).or_default() += 1;
    }

    /// How often a map was looked up.
    pub(crate) fn look_ups(&self, map: &str) -> u32 {
        self.look_ups.borrow().get(map).copied().unwrap_or(0)
    }

    /// Look-ups by map, and the other calls; from now on they are counted anew.
    pub(crate) fn take(&self) -> (Counts, Counts) {
        (self.look_ups.take(), self.others.take())
    }
}

impl Tables for Model {
    fn address(&self, address: &Address) -> Option<u32> {
        self.calls.look_up("ADDRESSES");
        self.addresses.get(address).copied()
    }
    fn frontend(&self, key: &FrontendKey) -> Option<Frontend> {
        self.calls.look_up("FRONTENDS");
        self.frontends.get(key).copied()
    }
    fn service(&self, id: ServiceId) -> Option<Service> {
        self.calls.look_up("SERVICES");
        self.services.get(&id).copied()
    }
    fn slot(&self, key: &SlotKey) -> Option<BackendId> {
        self.calls.look_up("SLOTS");
        self.slots.get(key).copied()
    }
    fn backend(&self, id: BackendId) -> Option<Backend> {
        self.calls.look_up("BACKENDS");
        self.backends.get(&id).copied()
    }
    fn affinity(&self, key: &AffinityKey) -> Option<Affinity> {
        self.calls.look_up("AFFINITY");
        self.affinity.borrow().get(key).copied()
    }
    fn keep_affinity(&self, key: &AffinityKey, value: &Affinity) {
        self.calls.other("AFFINITY written");
        self.affinity.borrow_mut().insert(*key, *value);
    }
    fn random(&self) -> u32 {
        self.calls.other("random number");
        self.random
    }
    fn now(&self) -> u32 {
        self.calls.other("time");
        self.now
    }
}

/// The service port of [`Model::two_pods`].
pub(crate) const SERVICE: ServiceId = 7;
/// Its ClusterIP.
pub(crate) const VIP: FrontendKey = tcp(Address::v4([10, 96, 0, 1]), 80);
/// Its node port, IPv4 and IPv6.
pub(crate) const NODE_PORT: FrontendKey = tcp(Address::UNSPECIFIED_V4, 30080);
pub(crate) const NODE_PORT_V6: FrontendKey = tcp(Address::UNSPECIFIED_V6, 30080);
/// An address of the node.
pub(crate) const NODE: Address = Address::v4([192, 0, 2, 7]);
/// The numbers of pods 1 and 2.
pub(crate) const ONE: BackendId = 11;
pub(crate) const TWO: BackendId = 12;

/// A destination.
pub(crate) const fn tcp(address: Address, port: u16) -> FrontendKey {
    FrontendKey {
        address,
        port: Port::new(port),
        protocol: TCP,
        pad: 0,
    }
}

/// A pod as backend.
pub(crate) const fn pod(last: u8) -> Backend {
    Backend {
        address: Address::v4([10, 244, 0, last]),
        port: Port::new(8080),
        protocol: TCP,
        flags: 0,
    }
}

/// The key of a slot of the service port.
pub(crate) const fn slot_key(generation: u32, index: u32) -> SlotKey {
    SlotKey {
        service: SERVICE,
        generation,
        index,
    }
}

impl Model {
    /// The service port in generation 3, with pods 1 and 2 behind its ClusterIP and node ports; generation 2 had
    /// pod 9. The node has one address, and loopback.
    pub(crate) fn two_pods() -> Self {
        let mut model = Self::default();
        let both = Frontend {
            internal: SERVICE,
            external: SERVICE,
            ..Frontend::default()
        };
        model
            .frontends
            .extend([(VIP, both), (NODE_PORT, both), (NODE_PORT_V6, both)]);
        model.addresses.extend([
            (VIP.address, address_flags::VIP),
            (NODE, address_flags::NODE),
            (Address::LOOPBACK_V4, address_flags::NODE),
            (Address::LOOPBACK_V6, address_flags::NODE),
        ]);
        model.switch(3, 2);
        model
            .slots
            .extend([(slot_key(2, 0), 99), (slot_key(3, 0), ONE), (slot_key(3, 1), TWO)]);
        for id in [ONE, TWO] {
            model.slots.insert(SlotKey::member(SERVICE, 3, id), id);
        }
        model
            .backends
            .extend([(ONE, pod(1)), (TWO, pod(2)), (99, pod(9))]);
        model
    }

    /// Switches the service port.
    pub(crate) fn switch(&mut self, generation: u32, slots: u32) {
        self.services.insert(SERVICE, Service { generation, slots });
    }

    /// Changes what all its frontends have in common.
    pub(crate) fn every_frontend(&mut self, change: impl Fn(&mut Frontend)) {
        self.frontends.values_mut().for_each(change);
    }
}
