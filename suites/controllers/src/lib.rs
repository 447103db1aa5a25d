//! The lab's controllers: what kube-controller-manager, kube-scheduler and a cloud do for services, over the real
//! protocol and with any API server.
//!
//! ```text
//!  services, pods, nodes, slices ─▶ cache ─▶ slices (endpoints → pack) ─▶ EndpointSlices
//!  pods, nodes ─▶ scheduler ─▶ bindings
//!  services ─▶ balancer ─▶ addresses in status, a finalizer, an annotation at every reconcile after a gap
//!  services, nodes, slices ─▶ routes ─▶ nodes behind each of these addresses
//! ```
//!
//! Each controller lists and watches by itself, keeps the objects in a `Cache`, and works through a set of names: an object
//! that changes twice is handled once. A failed write is tried again after [`RETRY`]. Memory is bounded by the objects of
//! the watched kinds.
//!
//! Files: `cache` (a watched kind), `slices/` (the EndpointSlice controller), `balancer/` (the load balancer
//! controller), `routes` (which nodes are behind a load balancer), `scheduler`.

mod balancer;
mod cache;
mod routes;
mod scheduler;
mod slices;

use std::time::Duration;

use futures::stream::BoxStream;
use kube::runtime::watcher;

pub use balancer::{ANNOTATION, Balancer, FINALIZER, others, take_back};
pub use cache::Key;
pub use routes::{Routes, route};
pub use scheduler::schedule;
pub use slices::{MOST_ENDPOINTS, SliceSettings, keep_slices};

/// Pause before a failed write is tried again.
pub const RETRY: Duration = Duration::from_millis(200);

/// Watch events of one kind.
type Events<K> = BoxStream<'static, watcher::Result<watcher::Event<K>>>;
