//! Network namespaces for tests, fuzzing and benchmarks: devices, addresses, routes, neighbours.
//!
//! ```text
//! Namespace         with a thread of its own ─┐
//! EnteredNamespace  of the calling thread   ──┴─▶ Links ─▶ Device (an end of a veth pair), addresses, Route, neighbours
//! ```
//!
//! Callers own their topology: which namespaces there are, and their addresses. Everything here blocks, so that it can
//! be called in any order with sockets and programs of a test. It can't be called in asynchronous code.
//!
//! | module | holds |
//! |---|---|
//! | `namespace` | namespaces, and their settings below /proc/sys/net |
//! | `links` | [`Links`]: changes devices, addresses, routes and neighbours of a namespace, by rtnetlink(7) |
//! | `device` | [`Device`]: one end of a veth pair |
//! | `route` | [`Route`] |
//! | `error` | [`NetworkError`] |
//!
//! The lab (`suites/lab`) has an asynchronous counterpart: it supervises namespaces for many processes, and its errors
//! are those of a product. Tests of the loader are not built from the lab, its API server and a Kubernetes client.

mod device;
mod error;
mod links;
mod namespace;
mod route;

/// An address with the length of its network; that of one address is `address.into()`.
pub use ipnet::IpNet;

pub use self::{
    device::Device,
    error::NetworkError,
    links::Links,
    namespace::{EnteredNamespace, Namespace, current_namespace, prepare, set_sysctl},
    route::{Route, Via},
};
