//! Backends that have left a service port: of UDP those whose flows and sockets must be ended, of TCP those whose unanswered
//! connections must.

use std::collections::BTreeSet;

use lb_abi::{BackendId, ServiceId};

use crate::endpoint_address::{Backend, Protocol, TransportAddress};

/// Most departed backends, and most moved frontends, that are listed; the others are counted.
pub const DEPARTED_LIMIT: usize = 4096;

/// A backend that has left a service port. Flows and connected sockets of UDP would last as long as both ends send, and a TCP
/// connection that is being opened would ask until its time limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departed {
    /// The number of the service port; 0: one of an earlier start, not known.
    pub service: ServiceId,
    /// Its frontends; none of an earlier start.
    pub frontends: BTreeSet<TransportAddress>,
    /// The backend.
    pub backend: TransportAddress,
    /// Its number.
    pub id: BackendId,
}

/// A list of at most [`DEPARTED_LIMIT`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounded<T> {
    /// The first of them.
    pub listed: Vec<T>,
    /// How many more there were.
    pub unlisted: u64,
}

impl<T> Default for Bounded<T> {
    fn default() -> Self {
        Self {
            listed: Vec::new(),
            unlisted: 0,
        }
    }
}

impl<T> Bounded<T> {
    /// Whether it is empty.
    pub const fn is_empty(&self) -> bool {
        self.listed.is_empty() && self.unlisted == 0
    }

    pub(super) fn add(&mut self, one: T) {
        if self.listed.len() < DEPARTED_LIMIT {
            self.listed.push(one);
        } else {
            self.unlisted += 1;
        }
    }
}

impl Bounded<Departed> {
    /// A backend has left a service port that has, or had, this number and these frontends.
    pub(super) fn add_backend(
        &mut self,
        service: ServiceId,
        frontends: &BTreeSet<TransportAddress>,
        id: BackendId,
        backend: Backend,
    ) {
        self.add(Departed {
            service,
            frontends: frontends.clone(),
            backend: backend.address,
            id,
        });
    }
}

/// Whether there may be something to end when a backend leaves: established flows that do not end by themselves, or connections
/// that are being opened, of sockets that programs translate.
pub(super) fn is_told(backend: &Backend) -> bool {
    backend.address.protocol != Protocol::Sctp
}

/// Whether flows to a backend do not end by themselves.
pub(super) fn is_udp(backend: &Backend) -> bool {
    backend.address.protocol == Protocol::Udp
}
