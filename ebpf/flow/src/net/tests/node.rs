//! A node and its packets, in memory.

use core::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use lb_abi::{
    Address, Affinity, AffinityKey, Backend, BackendId, Config, Flow, FragmentKey, Frontend, FrontendKey,
    HeldKey, Port, Ports, Service, ServiceId, SlotKey, SourceKey, Tuple,
};

use crate::{
    Tables,
    model::Model,
    net::{
        Attempt, CLAIMED, Entry, Inserted, Node, Options, Packet, PacketState, Socket, attempt, attempts,
        has_jumbo, options, reject::ANSWER_WORDS,
    },
};

extern crate std;

/// A packet.
#[derive(Clone, Copy)]
pub(in crate::net) struct Bytes<'a>(pub(in crate::net) &'a [u8]);

impl Bytes<'_> {
    fn part<const COUNT: usize>(self, offset: u32) -> Option<[u8; COUNT]> {
        let from = self.0.get(usize::try_from(offset).ok()?..)?;
        from.first_chunk().copied()
    }
}

impl Packet for Bytes<'_> {
    fn protocol(self) -> [u8; 2] {
        self.part(12).unwrap_or([0; 2])
    }
    fn length(self) -> u32 {
        u32::try_from(self.0.len()).expect("a packet's length")
    }
    fn is_gso(self) -> bool {
        false
    }
    fn words<const WORDS: usize>(self, offset: u32) -> Option<[u32; WORDS]> {
        let mut words = [0; WORDS];
        for (index, word) in (0..).zip(&mut words) {
            *word = u32::from_ne_bytes(self.part(offset + 4 * index)?);
        }
        Some(words)
    }
    fn half(self, offset: u32) -> Option<[u8; 2]> {
        self.part(offset)
    }
    fn byte(self, offset: u32) -> Option<u8> {
        self.part(offset).map(|[byte]| byte)
    }
    fn copy<const AT: usize>(self, offset: u32, length: u32, into: &mut [u32; ANSWER_WORDS]) -> bool {
        for (index, word) in (0..length / 4).zip(&mut into[AT..]) {
            match self.part(offset + 4 * index) {
                Some(bytes) => *word = u32::from_ne_bytes(bytes),
                None => return false,
            }
        }
        true
    }
    fn options(self, at: u32, end: u32) -> Options {
        options(self, at, end)
    }
    fn has_jumbo(self, at: u32, end: u32) -> bool {
        has_jumbo(self, at, end)
    }
}

/// A node.
#[derive(Clone)]
pub(in crate::net) struct Fake {
    pub(in crate::net) maps: Model,
    pub(in crate::net) config: Config,
    /// The port of a local socket, and which it is.
    pub(in crate::net) socket: Option<(Port, Socket)>,
    /// Whether packets are the node's own.
    pub(in crate::net) sends: bool,
    /// Ports that were taken before their time.
    pub(in crate::net) reused: Cell<u32>,
    /// HELD, without the frames.
    pub(in crate::net) held: RefCell<BTreeSet<HeldKey>>,
    /// A client of the cluster.
    pub(in crate::net) of_cluster: Option<Address>,
    flows: RefCell<BTreeMap<Tuple, Flow>>,
    fragments: RefCell<BTreeMap<FragmentKey, Ports>>,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            maps: Model::default(),
            config: Config::NONE,
            socket: None,
            sends: false,
            reused: Cell::new(0),
            held: RefCell::default(),
            of_cluster: None,
            flows: RefCell::default(),
            fragments: RefCell::default(),
        }
    }
}

impl Fake {
    /// What CONNTRACK has.
    pub(in crate::net) fn entry(&self, key: &Tuple) -> Option<Flow> {
        self.flows.borrow().get(key).copied()
    }

    /// Whether it has nothing.
    pub(in crate::net) fn is_empty(&self) -> bool {
        self.flows.borrow().is_empty()
    }

    /// How many entries it has.
    pub(in crate::net) fn count(&self) -> usize {
        self.flows.borrow().len()
    }

    /// Changes an entry that is there.
    pub(in crate::net) fn change(&self, key: &Tuple, change: impl FnOnce(&mut Flow)) {
        change(
            self.flows
                .borrow_mut()
                .get_mut(key)
                .expect("an entry of CONNTRACK"),
        );
    }
}

/// An entry, by its key.
#[derive(Clone, Copy)]
pub(in crate::net) struct Found<'a>(&'a Fake, Tuple);

impl Found<'_> {
    fn flow(self) -> Flow {
        self.0.entry(&self.1).expect("an entry that was found")
    }
}

impl Entry for Found<'_> {
    fn to(self) -> Tuple {
        self.flow().to
    }
    fn service(self) -> ServiceId {
        self.flow().service
    }
    fn backend(self) -> BackendId {
        self.flow().backend
    }
    fn flags(self) -> u32 {
        self.flow().flags
    }
    fn seen(self) -> u32 {
        self.flow().seen
    }
    fn last_seen(self) -> u32 {
        self.flow().last_seen
    }
    fn note(self, seen: u32, now: u32) {
        self.0.change(&self.1, |flow| {
            flow.seen |= seen;
            flow.last_seen = now;
        });
    }
    fn take(self) -> bool {
        let free = self.flow().claim != CLAIMED;
        self.0.change(&self.1, |flow| flow.claim = CLAIMED);
        free
    }
}

impl<'a> Node for &'a Fake {
    type Entry = Found<'a>;

    fn flow(self, key: &Tuple) -> Option<Found<'a>> {
        self.maps.calls.look_up("CONNTRACK");
        self.entry(key).map(|_| Found(self, *key))
    }
    fn insert(self, key: &Tuple, flow: &Flow) -> Inserted {
        self.maps.calls.other("CONNTRACK written");
        if self.entry(key).is_some() {
            return Inserted::Exists;
        }
        self.flows.borrow_mut().insert(*key, *flow);
        Inserted::New
    }
    fn store(self, key: &Tuple, flow: &Flow) -> bool {
        self.maps.calls.other("CONNTRACK written");
        self.flows.borrow_mut().insert(*key, *flow);
        true
    }
    fn remove(self, key: &Tuple) {
        self.maps.calls.other("CONNTRACK deleted");
        self.flows.borrow_mut().remove(key);
    }
    fn ports(self, key: &FragmentKey) -> Option<Ports> {
        self.maps.calls.look_up("FRAGMENTS");
        self.fragments.borrow().get(key).copied()
    }
    fn keep_ports(self, key: &FragmentKey, ports: &Ports) {
        self.maps.calls.other("FRAGMENTS written");
        self.fragments.borrow_mut().insert(*key, *ports);
    }
    fn insert_ports(self, key: &FragmentKey, ports: &Ports) -> bool {
        self.maps.calls.other("FRAGMENTS written");
        let mut fragments = self.fragments.borrow_mut();
        let new = !fragments.contains_key(key);
        if new {
            fragments.insert(*key, *ports);
        }
        new
    }
    fn hold(self, work: &mut PacketState) -> bool {
        self.held.borrow_mut().insert(work.held);
        true
    }
    fn release(self, work: &mut PacketState) {
        self.held
            .borrow_mut()
            .retain(|held| held.datagram != work.held.datagram || held.number >= work.held.number);
    }
    fn admits(self, client: &SourceKey) -> bool {
        self.maps.calls.look_up("SOURCES");
        client.service != SourceKey::CLUSTER.to_be_bytes() || self.of_cluster == Some(client.address)
    }
    fn own_address(self, v4: bool) -> Address {
        if v4 {
            self.config.node_v4
        } else {
            self.config.node_v6
        }
    }
    fn snat_ports(self) -> (u16, u16) {
        (self.config.snat_first, self.config.snat_last)
    }
    fn local_ports(self) -> (u16, u16) {
        (self.config.local_first, self.config.local_last)
    }
    fn in_service_range(self, address: Address) -> bool {
        self.config
            .service_ranges
            .iter()
            .any(|range| range.contains(address))
    }
    fn rejects_per_second(self) -> u32 {
        self.config.rejects_per_second
    }
    fn is_locally_generated(self) -> bool {
        self.sends
    }
    fn socket(self, tuple: &Tuple) -> Socket {
        self.maps.calls.other("socket looked up");
        match self.socket {
            Some((port, socket)) if port == tuple.destination_port => socket,
            _ => Socket::None,
        }
    }
    fn count_reused(self) {
        self.reused.set(self.reused.get() + 1);
    }
    fn attempts(self, work: &mut PacketState) -> Attempt {
        attempts(self, work)
    }
    fn attempt(self, work: &mut PacketState) -> Attempt {
        attempt(self, work)
    }
}

impl Tables for &Fake {
    fn address(&self, address: &Address) -> Option<u32> {
        self.maps.address(address)
    }
    fn frontend(&self, key: &FrontendKey) -> Option<Frontend> {
        self.maps.frontend(key)
    }
    fn service(&self, id: ServiceId) -> Option<Service> {
        self.maps.service(id)
    }
    fn slot(&self, key: &SlotKey) -> Option<BackendId> {
        self.maps.slot(key)
    }
    fn backend(&self, id: BackendId) -> Option<Backend> {
        self.maps.backend(id)
    }
    fn affinity(&self, key: &AffinityKey) -> Option<Affinity> {
        self.maps.affinity(key)
    }
    fn keep_affinity(&self, key: &AffinityKey, value: &Affinity) {
        self.maps.keep_affinity(key, value);
    }
    fn random(&self) -> u32 {
        self.maps.random()
    }
    fn now(&self) -> u32 {
        self.maps.now()
    }
}
