//! TCP connections that are being opened to backends that have left: pure.

use std::{
    collections::{BTreeSet, HashMap},
    net::SocketAddr,
};

use lb_abi::{FrontendKey, SocketRevnat, SocketRevnatKey, TCP};

use super::{
    LiveMaps,
    lookup::{Lookup, address},
};

/// Departed TCP backends, with the frontends of the service ports that they have left.
#[derive(Clone, Debug, Default)]
pub(super) struct Unanswering(HashMap<SocketAddr, BTreeSet<FrontendKey>>);

impl Unanswering {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a backend. Beyond `most` it is left to the connections' own time limit.
    pub(super) fn add(&mut self, backend: SocketAddr, frontends: Vec<FrontendKey>, most: usize) {
        if self.0.len() < most || self.0.contains_key(&backend) {
            self.0.entry(backend).or_default().extend(frontends);
        }
    }

    /// Whether a socket asks a backend that has left the service port it was sent to it by, and has not come back.
    pub(super) fn is_stale<L: LiveMaps>(
        &self,
        key: &SocketRevnatKey,
        remembered: &SocketRevnat,
        maps: &Lookup<'_, L>,
    ) -> bool {
        let backend = address(&key.backend);
        let departed = self.0.get(&backend);
        key.backend.protocol == TCP
            && departed
                .is_some_and(|frontends| maps.is_one_of(&remembered.frontend, |key| frontends.contains(key)))
            && maps.has_left_frontend(&remembered.frontend, backend)
    }
}
