//! Ends UDP flows and connected UDP sockets whose backend serves no more.
//!
//! ```text
//! Changes.departed ─▶ Departures (coalesced) ─▶ Worker ─┬─▶ FLOWS: entries of (service port, backend) go
//!                                                        └─▶ REVERSE says which sockets ─▶ their connections end
//! ```
//!
//! TCP finds out by itself; a UDP client that keeps sending would feed the old backend for as long as both live. A flow
//! whose entry is gone chooses again with its next datagram. A socket that called `connect` was translated then, and is
//! told: whoever waits on it sees an error, and opens another. Left alone are flows and sockets of other backends, of
//! other Services that still have this one, and sockets that have since been connected elsewhere.
//!
//! | file | what |
//! |---|---|
//! | `batch` | pure: which flows and sockets go |
//! | `worker` | one batch after the other; what fails is tried again |
//! | `kernel` | the kernel's maps and sockets |
//! | `namespaces` | the network namespaces in which sockets may be |
//!
//! # Bounds
//! [`WAITING`] backends wait, each once; of more it is only known that there were, and then everything is looked at
//! whose backend nobody has any more. [`TRIES`] for what fails. Two walks, over FLOWS and over REVERSE, for each batch,
//! however many backends are in it.

mod batch;
mod kernel;
mod namespaces;
mod worker;

use std::{collections::HashSet, net::SocketAddr};

use lb_abi::{Backend, BackendId, Flow, FrontendKey, Remembered, ReverseKey, Tuple};
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
    /// What the kernel said.
    fn end_flows(&mut self, goes: &mut dyn FnMut(&Tuple, &Flow) -> bool) -> Result<usize, LoaderError>;

    /// Which sockets were sent where.
    ///
    /// # Errors
    /// What the kernel said.
    fn sockets(&mut self) -> Result<Vec<(ReverseKey, Remembered)>, LoaderError>;

    /// Whether a frontend is one by its own address, and not a node port at it.
    ///
    /// # Errors
    /// What the kernel said.
    fn is_frontend(&mut self, key: &FrontendKey) -> Result<bool, LoaderError>;

    /// A backend that there is.
    ///
    /// # Errors
    /// What the kernel said.
    fn backends(&mut self) -> Result<Vec<(BackendId, Backend)>, LoaderError>;

    /// Ends the connections of those of these sockets that are connected to a backend, in every network namespace, and
    /// says how many.
    ///
    /// # Errors
    /// What the kernel said.
    fn end_sockets(&mut self, backend: SocketAddr, cookies: &HashSet<u64>) -> Result<usize, LoaderError>;
}
