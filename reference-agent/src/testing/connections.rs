//! Flows and sockets of a [`Node`], in memory.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    net::SocketAddr,
};

use lb_abi::{
    Address, Backend, BackendId, Chosen, ChosenKey, Flow, Frontend, FrontendKey, Port, Remembered,
    ReverseKey, Tuple,
};
use lb_loader::LoaderError;

use super::node::{Node, refused};
use crate::udp::Connections;

/// What programs have noted on a node without programs: what a test says.
#[derive(Debug, Default)]
pub(super) struct Noted {
    pub(super) flows: BTreeMap<Tuple, Flow>,
    /// Entries that are there again when they have been removed once.
    pub(super) returning: Vec<(Tuple, Flow)>,
    pub(super) choices: BTreeMap<ChosenKey, Chosen>,
    /// Sockets and whether they are connected to the backend still.
    pub(super) sockets: BTreeMap<ReverseKey, (Remembered, bool)>,
    pub(super) ended: BTreeSet<u64>,
    /// So many more attempts to end sockets fail.
    pub(super) failures: u32,
}

/// The flows and sockets of a [`Node`].
#[derive(Debug)]
pub struct NodeConnections(pub(super) Node);

impl Connections for NodeConnections {
    fn end_flows(&mut self, goes: &mut dyn FnMut(&Tuple, &Flow) -> bool) -> Result<usize, LoaderError> {
        let mut state = self.0.lock();
        let before = state.noted.flows.len();
        state.noted.flows.retain(|key, flow| !goes(key, flow));
        let ended = before - state.noted.flows.len();
        let returning = std::mem::take(&mut state.noted.returning);
        state.noted.flows.extend(returning);
        Ok(ended)
    }

    fn end_choices(&mut self, goes: &mut dyn FnMut(&ChosenKey, &Chosen) -> bool) -> Result<(), LoaderError> {
        let mut state = self.0.lock();
        state.noted.choices.retain(|key, chosen| !goes(key, chosen));
        Ok(())
    }

    fn sockets(&mut self, show: &mut dyn FnMut(&ReverseKey, &Remembered)) -> Result<(), LoaderError> {
        for (key, (remembered, _)) in &self.0.lock().noted.sockets {
            show(key, remembered);
        }
        Ok(())
    }

    fn frontends(&mut self) -> Result<Vec<(FrontendKey, Frontend)>, LoaderError> {
        Ok(self.0.contents().frontends)
    }

    fn addresses(&mut self) -> Result<Vec<(Address, u32)>, LoaderError> {
        Ok(self.0.contents().addresses)
    }

    fn backends(&mut self) -> Result<Vec<(BackendId, Backend)>, LoaderError> {
        Ok(self.0.contents().backends)
    }

    fn end_sockets(&mut self, backend: SocketAddr, cookies: &HashSet<u64>) -> Result<usize, LoaderError> {
        let mut state = self.0.lock();
        let noted = &mut state.noted;
        if noted.failures > 0 {
            noted.failures -= 1;
            return Err(refused("end UDP sockets"));
        }
        let mut ended = 0;
        for (key, (_, connected)) in &mut noted.sockets {
            let at = SocketAddr::new(key.backend.address.into(), key.backend.port.get());
            if at == backend && cookies.contains(&key.cookie) && std::mem::take(connected) {
                noted.ended.insert(key.cookie);
                ended += 1;
            }
        }
        Ok(ended)
    }
}

impl Node {
    /// The programs note an entry of FLOWS.
    pub fn note_flow(&self, key: Tuple, flow: Flow) {
        self.lock().noted.flows.insert(key, flow);
    }

    /// A packet brings an entry of FLOWS back when it is removed.
    pub fn note_returning_flow(&self, key: Tuple, flow: Flow) {
        self.note_flow(key, flow);
        self.lock().noted.returning.push((key, flow));
    }

    /// The programs note where the datagrams of an unconnected socket go.
    pub fn note_choice(&self, key: ChosenKey, chosen: Chosen) {
        self.lock().noted.choices.insert(key, chosen);
    }

    /// Cookies of the unconnected sockets of which it is known where their datagrams go.
    pub fn choices(&self) -> BTreeSet<u64> {
        self.lock().noted.choices.keys().map(|key| key.cookie).collect()
    }

    /// How many entries FLOWS has.
    pub fn flows(&self) -> usize {
        self.lock().noted.flows.len()
    }

    /// The programs note where a socket was sent; `connected`: it is there still.
    pub fn note_socket(&self, key: ReverseKey, frontend: FrontendKey, connected: bool) {
        let remembered = Remembered {
            frontend,
            previous: Backend {
                address: Address::UNSPECIFIED_V6,
                port: Port::new(0),
                protocol: 0,
                flags: 0,
            },
        };
        self.lock().noted.sockets.insert(key, (remembered, connected));
    }

    /// Cookies of the sockets whose connections were ended.
    pub fn ended(&self) -> BTreeSet<u64> {
        self.lock().noted.ended.clone()
    }

    /// So many attempts to end sockets fail from now on.
    pub fn fail_to_end(&self, times: u32) {
        self.lock().noted.failures = times;
    }
}
