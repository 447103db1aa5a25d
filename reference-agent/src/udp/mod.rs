//! Ends UDP flows and connected UDP sockets whose backend serves no more, or whose frontend is another service port's.
//!
//! ```text
//! Changes.departed ─┬─▶ Departures ─▶ Worker ─┬─▶ CHOSEN: what unconnected sockets remember goes
//! Changes.moved ────┘   (coalesced)           ├─▶ FLOWS: entries of (service port, backend), or of a frontend, go
//!                                             └─▶ REVERSE says which sockets ─▶ their connections end
//! ```
//!
//! TCP finds out by itself; a UDP client that keeps sending would feed the old backend for as long as both live. A flow
//! whose entry is gone chooses again with its next datagram. A socket that called `connect` was translated then, and is
//! told: whoever waits on it sees an error, and opens another. Left alone are flows and sockets of other backends, of
//! other Services that still have this one, and sockets that have since been connected elsewhere; of a frontend that has
//! moved, flows that its new service port has opened, and sockets that are connected to a backend that serves that, too.
//! A Service's change of traffic policy moves none of its frontends.
//!
//! | file | what |
//! |---|---|
//! | `batch` | pure: which flows and sockets go |
//! | `lookup` | what the maps say now, as the programs look it up |
//! | `worker` | one batch after the other; what fails is tried again |
//! | `kernel` | the kernel's maps and sockets |
//! | `namespaces` | the network namespaces in which sockets may be |
//!
//! # Bounds
//! [`WAITING`] backends wait, each once, and as many frontends. Of more it is only known that there were. Then all flows and
//! sockets go whose backend nobody has any more; or all flows that were opened through a frontend that does not lead to their
//! service port now, and sockets whose frontend is nobody's. [`TRIES`] for what fails. One walk over REVERSE and CHOSEN and at
//! most four over FLOWS for each batch, however much is in it. These maps are large on large machines (`ebpf/DATAPATH.md`): of
//! their entries some thousand are in memory at a time, and of all sockets the cookies of those that go.

mod batch;
mod kernel;
mod lookup;
mod namespaces;
mod worker;

use std::{collections::HashSet, net::SocketAddr};

use lb_abi::{
    Address, Backend, BackendId, Chosen, ChosenKey, Flow, Frontend, FrontendKey, Remembered, ReverseKey,
    Tuple,
};
use lb_loader::LoaderError;

pub use self::{
    batch::Batch,
    kernel::KernelConnections,
    namespaces::{NAMESPACES, each_namespace},
    worker::{Departures, RETRY, TRIES, WAITING, Worker},
};

/// What the programs have noted of flows and sockets.
pub trait Connections: Send {
    /// Removes the entries of FLOWS that are to go, and says how many.
    ///
    /// # Errors
    /// The kernel's error.
    fn end_flows(&mut self, goes: &mut dyn FnMut(&Tuple, &Flow) -> bool) -> Result<usize, LoaderError>;

    /// Removes the entries of CHOSEN that are to go.
    ///
    /// # Errors
    /// The kernel's error.
    fn end_choices(&mut self, goes: &mut dyn FnMut(&ChosenKey, &Chosen) -> bool) -> Result<(), LoaderError>;

    /// Shows which sockets were sent where: REVERSE, in no order.
    ///
    /// # Errors
    /// The kernel's error.
    fn sockets(&mut self, show: &mut dyn FnMut(&ReverseKey, &Remembered)) -> Result<(), LoaderError>;

    /// The frontends that there are.
    ///
    /// # Errors
    /// The kernel's error.
    fn frontends(&mut self) -> Result<Vec<(FrontendKey, Frontend)>, LoaderError>;

    /// The addresses of frontends and of the node.
    ///
    /// # Errors
    /// The kernel's error.
    fn addresses(&mut self) -> Result<Vec<(Address, u32)>, LoaderError>;

    /// The backends that there are.
    ///
    /// # Errors
    /// The kernel's error.
    fn backends(&mut self) -> Result<Vec<(BackendId, Backend)>, LoaderError>;

    /// Ends the connections of those of these sockets that are connected to a backend, in every network namespace, and
    /// says how many.
    ///
    /// # Errors
    /// The kernel's error.
    fn end_sockets(&mut self, backend: SocketAddr, cookies: &HashSet<u64>) -> Result<usize, LoaderError>;
}
