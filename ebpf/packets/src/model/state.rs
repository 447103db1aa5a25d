//! What the model reads, and what it returns.

use std::collections::{BTreeMap, BTreeSet};

use lb_abi::{
    Address, Affinity, AffinityKey, Backend, BackendId, Config, Counter, Flow, FragmentKey, Frontend,
    FrontendKey, Ports, Service, ServiceId, SlotKey, SourceKey, Tuple,
};

use super::Routes;

/// Everything that a packet's fate depends on: the maps.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is the map of that name")]
pub struct State {
    pub addresses: BTreeMap<Address, u32>,
    pub frontends: BTreeMap<FrontendKey, Frontend>,
    pub services: BTreeMap<ServiceId, Service>,
    pub slots: BTreeMap<SlotKey, BackendId>,
    pub backends: BTreeMap<BackendId, Backend>,
    pub sources: BTreeSet<SourceKey>,
    pub affinity: BTreeMap<AffinityKey, Affinity>,
    pub flows: BTreeMap<Tuple, Flow>,
    pub fragments: BTreeMap<FragmentKey, Ports>,
    pub config: Config,
}

impl Default for State {
    fn default() -> Self {
        Self {
            addresses: BTreeMap::new(),
            frontends: BTreeMap::new(),
            services: BTreeMap::new(),
            slots: BTreeMap::new(),
            backends: BTreeMap::new(),
            sources: BTreeSet::new(),
            affinity: BTreeMap::new(),
            flows: BTreeMap::new(),
            fragments: BTreeMap::new(),
            config: Config::NONE,
        }
    }
}

impl State {
    /// How many entries there are in all maps.
    pub fn entries(&self) -> usize {
        self.flows.len()
            + self.affinity.len()
            + self.fragments.len()
            + self.frontends.len()
            + self.services.len()
            + self.slots.len()
            + self.backends.len()
            + self.addresses.len()
            + self.sources.len()
    }
}

/// Which program sees the packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Device {
    /// What comes from the network.
    NodeIngress,
    /// What leaves to the network.
    NodeEgress,
    /// What comes from a pod.
    PodIngress,
    /// What goes to a pod.
    PodEgress,
}

impl Device {
    /// Whether it sees what enters the node's stack.
    pub fn inbound(self) -> bool {
        matches!(self, Self::NodeIngress | Self::PodIngress)
    }
}

/// A packet and its circumstances.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// The program.
    pub hook: Device,
    /// The frame, from the link layer's header on.
    pub frame: &'a [u8],
    /// Whether it is the node's own: it has come in by no device.
    pub own: bool,
    /// Into what the device will cut it; 0: it will not.
    pub gso_size: u32,
    /// Whether the device that the packet is at forwards.
    pub forwards: bool,
    /// Seconds since the machine started.
    pub now: u32,
    /// Ways from here.
    pub routes: &'a Routes,
    /// Sockets of the node.
    pub sockets: &'a NodeSockets,
    /// What has been answered already.
    pub rejects: Rejects,
}

/// The node's sockets of TCP and UDP.
#[derive(Clone, Default, Debug)]
pub struct NodeSockets {
    /// Those that receive from any source: protocol, address and port.
    pub bound: BTreeSet<(u8, Address, u16)>,
    /// Tuples of what connected ones send.
    pub connected: BTreeSet<Tuple>,
}

impl NodeSockets {
    /// Whether one of them would receive a packet with this tuple.
    pub(super) fn receive(&self, tuple: &Tuple) -> bool {
        let end = (tuple.protocol, tuple.destination, tuple.destination_port.get());
        self.bound.contains(&end) || self.connected.contains(&tuple.inverse())
    }
}

/// How many packets may have been answered in the current second, by what is known of the clock.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Rejects {
    /// At least as many.
    pub least: u32,
    /// At most as many.
    pub most: u32,
}

/// What a program did, as far as it may choose.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// Where it counted.
    pub counter: Counter,
    /// The frame that it left.
    pub frame: &'a [u8],
    /// CONNTRACK afterwards.
    pub flows: &'a BTreeMap<Tuple, Flow>,
    /// Of what leaves no trace (the backend of a packet that was then dropped): which is tried.
    pub pick: usize,
}

/// What a program returns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// TC_ACT_UNSPEC: on to whatever comes next.
    Pass,
    /// TC_ACT_SHOT.
    Drop,
    /// TC_ACT_REDIRECT.
    Redirect,
}

/// What is to happen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Of the program.
    pub verdict: Verdict,
    /// Where it counts, once.
    pub counter: Counter,
    /// The frame as the program leaves it: of a dropped one nothing is written.
    pub frame: Vec<u8>,
    /// CONNTRACK afterwards.
    pub flows: BTreeMap<Tuple, Flow>,
    /// AFFINITY afterwards.
    pub affinity: BTreeMap<AffinityKey, Affinity>,
    /// FRAGMENTS afterwards.
    pub fragments: BTreeMap<FragmentKey, Ports>,
    /// What is added to SERVICE_TRAFFIC and BACKEND_TRAFFIC.
    pub traffic: Option<Translated>,
}

/// A translated packet, as it is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translated {
    /// For which service port.
    pub service: ServiceId,
    /// And which backend.
    pub backend: BackendId,
    /// Whether it opened a connection.
    pub opened: bool,
    /// Its bytes from the IP header on.
    pub bytes: u64,
}
