//! Ends UDP flows and connected UDP sockets whose backend no longer serves, or whose frontend has passed to another service
//! port; and TCP connections that a backend has not answered which no longer serves.
//!
//! ```text
//! Changes.departed ─┬─▶ Departures ─▶ Worker ─┬─▶ CHOSEN: choices of unconnected sockets are deleted
//! Changes.moved ────┘   (coalesced)           ├─▶ CONNTRACK: entries of (service port, backend), or of a frontend, are deleted
//!                                             ├─▶ SOCKET_REVNAT: finds the sockets ─▶ their connections end
//!                                             └─▶ TCP sockets that wait for an answer ─▶ their connections end
//! ```
//!
//! Established TCP connections end by themselves. One that is being opened was translated at `connect`, too: the kernel sends its
//! SYN again, for two minutes, to an address that another pod may have by then. Only one that waits at two looks, [`RETRY`] apart,
//! is ended, so that what is about to be answered is (of packets the programs choose again, DATAPATH.md, section 4). A UDP client that keeps sending would reach the old backend for as long as both live.
//! A flow without an entry chooses again with its next datagram. A connected socket was translated at `connect`: its
//! connection is ended, so that its owner gets an error and opens another. Flows and sockets of other backends stay, also
//! those of other Services that still have this backend, and sockets that have been connected elsewhere since. At a frontend
//! that has moved, flows stay that the new service port has opened, and sockets that are connected to a backend of that.
//! A change of a Service's traffic policy moves none of its frontends. A backend that has come back since it left, and has a slot of
//! the service port again, keeps what it has: a flow may have been opened since, and its answer be on the way.
//!
//! | file | what |
//! |---|---|
//! | `batch` | pure: flows and sockets to be ended |
//! | `opening` | pure: TCP connections to be ended |
//! | `lookup` | the maps, read as the programs do, at the moment they are asked |
//! | `worker` | one batch after the other; failures are tried again |
//! | `kernel` | the kernel's maps and sockets |
//! | `namespaces` | the network namespaces of the sockets that the programs translate for |
//!
//! # Bounds
//! [`WAITING`] backends of each protocol and as many frontends wait, each once. TCP backends beyond that, and those that left while
//! no agent ran, are left to the connections' own time limit. Beyond that only the fact is known. Then all flows and
//! sockets end whose backend is in no map any more, or all flows of a frontend that does not lead to their service port now,
//! and sockets whose frontend is gone. [`TRIES`] after failures. For each batch one walk over SOCKET_REVNAT and CHOSEN and at most
//! four over CONNTRACK. These maps are large on large machines (`ebpf/DATAPATH.md`): some thousand of their entries are in
//! memory at a time, and the cookies of sockets to be ended.

mod batch;
mod kernel;
mod lookup;
mod namespaces;
mod opening;
mod worker;

use std::{collections::HashSet, net::SocketAddr};

use lb_abi::{
    Address, Backend, BackendId, Chosen, ChosenKey, Flow, Frontend, FrontendKey, Service, ServiceId, SlotKey,
    SocketRevnat, SocketRevnatKey, Tuple,
};
use lb_loader::LoaderError;

pub use self::{
    batch::Batch,
    kernel::KernelConnections,
    worker::{Departures, RETRY, TRIES, WAITING, Worker},
};

/// Single entries of the maps, read now.
pub trait LiveMaps {
    /// The frontend at exactly this address and port.
    ///
    /// # Errors
    /// The kernel's error.
    fn frontend(&self, key: &FrontendKey) -> Result<Option<Frontend>, LoaderError>;

    /// Whether an address is the node's, so that its node ports are served there.
    ///
    /// # Errors
    /// The kernel's error.
    fn is_nodes(&self, address: &Address) -> Result<bool, LoaderError>;

    /// The backend of a number.
    ///
    /// # Errors
    /// The kernel's error.
    fn backend(&self, id: BackendId) -> Result<Option<Backend>, LoaderError>;

    /// A service port.
    ///
    /// # Errors
    /// The kernel's error.
    fn service(&self, id: ServiceId) -> Result<Option<Service>, LoaderError>;

    /// The backend of a slot.
    ///
    /// # Errors
    /// The kernel's error.
    fn slot(&self, key: &SlotKey) -> Result<Option<BackendId>, LoaderError>;
}

/// Flows and sockets, as the programs have recorded them.
pub trait Connections: LiveMaps + Send {
    /// Deletes stale entries of CONNTRACK. The result: how many.
    ///
    /// # Errors
    /// The kernel's error.
    fn end_flows(&self, is_stale: &mut dyn FnMut(&Tuple, &Flow) -> bool) -> Result<usize, LoaderError>;

    /// Deletes stale entries of CHOSEN.
    ///
    /// # Errors
    /// The kernel's error.
    fn end_choices(&self, is_stale: &mut dyn FnMut(&ChosenKey, &Chosen) -> bool) -> Result<(), LoaderError>;

    /// Passes the entries of SOCKET_REVNAT, sockets and their frontends, to `show`, in no order.
    ///
    /// # Errors
    /// The kernel's error.
    fn sockets(&self, show: &mut dyn FnMut(&SocketRevnatKey, &SocketRevnat)) -> Result<(), LoaderError>;

    /// All backends.
    ///
    /// # Errors
    /// The kernel's error.
    fn backends(&self) -> Result<Vec<(BackendId, Backend)>, LoaderError>;

    /// Ends the connections of these sockets, as far as they are connected to the backend, in every network namespace in which
    /// the programs translate. The result: how many.
    ///
    /// # Errors
    /// The kernel's error.
    fn end_sockets(&self, backend: SocketAddr, cookies: &HashSet<u64>) -> Result<usize, LoaderError>;

    /// Of the TCP sockets there that wait for an answer to their SYN and that SOCKET_REVNAT has, ends those for which `is_to_end`
    /// is true. The result: how many.
    ///
    /// # Errors
    /// The kernel's error.
    fn end_opening(
        &self,
        is_to_end: &mut dyn FnMut(&SocketRevnatKey, &SocketRevnat) -> bool,
    ) -> Result<usize, LoaderError>;
}
