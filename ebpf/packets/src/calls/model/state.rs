//! What the model reads, and what it returns.

use std::collections::BTreeMap;

use lb_abi::{
    Address, Backend, BackendId, Chosen, ChosenKey, Counter, Service, ServiceId, SocketRevnat,
    SocketRevnatKey,
};

use crate::{calls::step::SocketKind, model};

/// Numbers that the kernel gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ids {
    /// Cookie of the node's network namespace.
    pub node: u64,
    /// Cookie of the other one.
    pub pod: u64,
    /// Id of the cgroup that all calls are from.
    pub cgroup: u64,
}

/// Everything that a call depends on: the maps, and the sockets.
#[derive(Clone, Debug)]
pub struct State {
    /// Those that packets depend on, too. CONNTRACK and FRAGMENTS have nothing.
    pub maps: model::State,
    /// KEPT.
    pub kept: BTreeMap<ServiceId, Service>,
    /// CHOSEN.
    pub chosen: BTreeMap<ChosenKey, Chosen>,
    /// SOCKET_REVNAT.
    pub reverse: BTreeMap<SocketRevnatKey, SocketRevnat>,
    /// SOCKET_BACKEND.
    pub sockets: BTreeMap<u64, Backend>,
    /// Whether META is of this version.
    pub live: bool,
    /// Sockets that are open, by their numbers.
    pub open: BTreeMap<usize, Socket>,
    /// Of this run.
    pub ids: Ids,
}

impl State {
    /// Empty maps.
    pub fn new(ids: Ids) -> Self {
        Self {
            maps: model::State::default(),
            kept: BTreeMap::new(),
            chosen: BTreeMap::new(),
            reverse: BTreeMap::new(),
            sockets: BTreeMap::new(),
            live: true,
            open: BTreeMap::new(),
            ids,
        }
    }
}

/// A socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Socket {
    /// How it names addresses.
    pub kind: SocketKind,
    /// TCP, or UDP.
    pub tcp: bool,
    /// In the namespace that is not the node's.
    pub pod: bool,
    /// What the kernel calls it.
    pub cookie: u64,
    /// Where it is connected to, as the kernel has it.
    pub peer: Option<(Address, u16)>,
    /// What it sends from, by IPv4, once it has been connected.
    pub source: Option<Address>,
    /// A later connect has found no route. Linux then sends to that destination, from the second datagram on: the flow that a
    /// connected socket keeps is overwritten before the route is looked up (`__ip4_datagram_connect`).
    pub is_misled: bool,
}

/// What a client, and the servers, have seen of a call.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CallResult {
    /// Number of the call's error; `None`: there was none.
    pub error: Option<i32>,
    /// The server that was reached.
    pub server: Option<(Address, u16)>,
    /// Whether something was received by the client.
    pub received: bool,
    /// The address that the client was shown: of the peer, or of the sender.
    pub shown: Option<(Address, u16)>,
    /// What was counted.
    pub counters: BTreeMap<Counter, u64>,
    /// Connections that were counted for service ports,
    pub services: BTreeMap<ServiceId, u64>,
    /// and for backends.
    pub backends: BTreeMap<BackendId, u64>,
}

/// What may come of a call.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What is seen.
    pub seen: CallResult,
    /// What is so afterwards.
    pub state: State,
}
