//! Flows and sockets of a [`Node`], in memory.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    net::SocketAddr,
};

use lb_abi::{
    Address, Backend, BackendId, Chosen, ChosenKey, Flow, Frontend, FrontendKey, Port, Service, ServiceId,
    SlotKey, SocketRevnat, SocketRevnatKey, TCP, Tuple, address_flags,
};
use lb_loader::LoaderError;

use super::node::{Node, refused};
use crate::udp::{Connections, LiveMaps};

/// Records of programs, made by a test.
#[derive(Debug, Default)]
pub(super) struct Records {
    pub(super) flows: BTreeMap<Tuple, Flow>,
    /// Entries that come back after one deletion.
    pub(super) returning: Vec<(Tuple, Flow)>,
    pub(super) choices: BTreeMap<ChosenKey, Chosen>,
    /// Sockets, and whether they are still connected to the backend.
    pub(super) sockets: BTreeMap<SocketRevnatKey, (SocketRevnat, bool)>,
    pub(super) ended: BTreeSet<u64>,
    /// How often those were asked for that wait for an answer.
    pub(super) looks: usize,
    /// How many more attempts to end sockets fail.
    pub(super) failures: u32,
}

/// The flows and sockets of a [`Node`].
#[derive(Debug)]
pub struct NodeConnections(pub(super) Node);

impl LiveMaps for NodeConnections {
    fn frontend(&self, key: &FrontendKey) -> Result<Option<Frontend>, LoaderError> {
        Ok(value_of(key, self.0.contents().frontends))
    }

    fn is_nodes(&self, address: &Address) -> Result<bool, LoaderError> {
        let flags = value_of(address, self.0.contents().addresses);
        Ok(flags.is_some_and(|flags| flags & address_flags::NODE != 0))
    }

    fn backend(&self, id: BackendId) -> Result<Option<Backend>, LoaderError> {
        Ok(value_of(&id, self.0.contents().backends))
    }

    fn service(&self, id: ServiceId) -> Result<Option<Service>, LoaderError> {
        Ok(value_of(&id, self.0.contents().services))
    }

    fn slot(&self, key: &SlotKey) -> Result<Option<BackendId>, LoaderError> {
        Ok(value_of(key, self.0.contents().slots))
    }
}

fn value_of<K: PartialEq, V>(key: &K, entries: Vec<(K, V)>) -> Option<V> {
    entries
        .into_iter()
        .find_map(|(found, value)| (found == *key).then_some(value))
}

impl Connections for NodeConnections {
    fn end_flows(&self, is_stale: &mut dyn FnMut(&Tuple, &Flow) -> bool) -> Result<usize, LoaderError> {
        // The lock is not held meanwhile: what decides reads the maps.
        let flows = self.0.lock().records.flows.clone();
        let stale: Vec<_> = flows.iter().filter(|(key, flow)| is_stale(key, flow)).collect();
        let mut state = self.0.lock();
        let ended = stale.len();
        for (key, _) in stale {
            state.records.flows.remove(key);
        }
        let returning = std::mem::take(&mut state.records.returning);
        state.records.flows.extend(returning);
        Ok(ended)
    }

    fn end_choices(&self, is_stale: &mut dyn FnMut(&ChosenKey, &Chosen) -> bool) -> Result<(), LoaderError> {
        let mut choices = self.0.lock().records.choices.clone();
        choices.retain(|key, chosen| !is_stale(key, chosen));
        self.0.lock().records.choices = choices;
        Ok(())
    }

    fn sockets(&self, show: &mut dyn FnMut(&SocketRevnatKey, &SocketRevnat)) -> Result<(), LoaderError> {
        let sockets = self.0.lock().records.sockets.clone();
        for (key, (remembered, _)) in &sockets {
            show(key, remembered);
        }
        Ok(())
    }

    fn backends(&self) -> Result<Vec<(BackendId, Backend)>, LoaderError> {
        Ok(self.0.contents().backends)
    }

    fn end_sockets(&self, backend: SocketAddr, cookies: &HashSet<u64>) -> Result<usize, LoaderError> {
        let mut state = self.0.lock();
        let records = &mut state.records;
        if records.failures > 0 {
            records.failures -= 1;
            return Err(refused("end UDP sockets"));
        }
        let mut ended = 0;
        for (key, (_, connected)) in &mut records.sockets {
            let at = SocketAddr::new(key.backend.address.into(), key.backend.port.get());
            if at == backend && cookies.contains(&key.cookie) && std::mem::take(connected) {
                records.ended.insert(key.cookie);
                ended += 1;
            }
        }
        Ok(ended)
    }

    fn end_opening(
        &self,
        is_to_end: &mut dyn FnMut(&SocketRevnatKey, &SocketRevnat) -> bool,
    ) -> Result<usize, LoaderError> {
        let mut state = self.0.lock();
        state.records.looks += 1;
        // The lock is not held meanwhile: what decides reads the maps.
        let mut sockets = state.records.sockets.clone();
        drop(state);
        let is_waiting = |key: &SocketRevnatKey, connected: bool| key.backend.protocol == TCP && !connected;
        sockets
            .retain(|key, (remembered, connected)| is_waiting(key, *connected) && is_to_end(key, remembered));
        let mut state = self.0.lock();
        for key in sockets.keys() {
            state.records.sockets.remove(key);
            state.records.ended.insert(key.cookie);
        }
        Ok(sockets.len())
    }
}

impl Node {
    /// Adds an entry of CONNTRACK.
    pub fn note_flow(&self, key: Tuple, flow: Flow) {
        self.lock().records.flows.insert(key, flow);
    }

    /// Adds an entry of CONNTRACK that a packet restores after its deletion.
    pub fn note_returning_flow(&self, key: Tuple, flow: Flow) {
        self.note_flow(key, flow);
        self.lock().records.returning.push((key, flow));
    }

    /// Adds the choice of an unconnected socket.
    pub fn note_choice(&self, key: ChosenKey, chosen: Chosen) {
        self.lock().records.choices.insert(key, chosen);
    }

    /// Cookies of the unconnected sockets with a choice.
    pub fn choices(&self) -> BTreeSet<u64> {
        self.lock().records.choices.keys().map(|key| key.cookie).collect()
    }

    /// How many entries CONNTRACK has.
    pub fn flows(&self) -> usize {
        self.lock().records.flows.len()
    }

    /// Adds an entry of SOCKET_REVNAT; `connected`: the socket is still connected to the backend. One of TCP that is not waits for
    /// an answer.
    pub fn note_socket(&self, key: SocketRevnatKey, frontend: FrontendKey, connected: bool) {
        let remembered = SocketRevnat {
            frontend,
            previous: Backend {
                address: Address::UNSPECIFIED_V6,
                port: Port::new(0),
                protocol: 0,
                flags: 0,
            },
        };
        self.lock().records.sockets.insert(key, (remembered, connected));
    }

    /// Cookies of the sockets whose connections were ended.
    pub fn ended(&self) -> BTreeSet<u64> {
        self.lock().records.ended.clone()
    }

    /// How often sockets were asked for that wait for an answer.
    pub fn looked_for_opening(&self) -> usize {
        self.lock().records.looks
    }

    /// The next attempts to end sockets fail.
    pub fn fail_to_end(&self, times: u32) {
        self.lock().records.failures = times;
    }
}
