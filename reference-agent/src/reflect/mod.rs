//! Watches of the API → events.
//!
//! ```text
//! stream of a list, or pages ─▶ watch from its version ─▶ Raw ─▶ decode ─▶ Relist ─▶ events
//!         ▲                          │ broken, silent, over: from the last version
//!         └──────────────────────────┘ expired or unreadable: a new list
//! ```
//!
//! An object is taken from the wire as JSON, whatever is in it, and decoded part by part ([`crate::decode`]): one
//! that is malformed costs its own malformed parts, never the watch, the list, or another object. Only a line
//! that is no JSON at all can't be told; then the watch is started again with a list, since an event may be
//! lost.
//!
//! The watches leave out, as kube-proxy's do, what is not balanced here: Services of another proxy and headless ones,
//! with their slices. An object that gets such a label arrives as deleted.
//!
//! Lists are consistent reads: none shows a state from before another one's, whichever API server answers. They are
//! streamed (KEP-3157) where the server can, since a streamed list costs the server no copy of it; otherwise paged. A
//! server that does not know streaming says so, or is found out by what it sends. One that falls silent within a list,
//! or ends it early, may not know it, or may have been stopped: one list is paged, and the next one streamed again.
//!
//! An API server without ServiceCIDRs (before 1.33) answers 404: it has none, and is asked again after [`WATCH_LIMIT`].
//!
//! # Bounds
//! [`RETRY_LIMIT`] between tries, behind an answer that the client may hold back for [`RETRY_AFTER_LIMIT`](crate::api_access::RETRY_AFTER_LIMIT), [`WATCH_LIMIT`] for one watch, [`WATCH_LEAST`] for one that brings
//! nothing, [`STREAM_LIMIT`] for an API server that says nothing
//! during a streamed list, [`PAGE`] objects in a page, [`EVENTS`](crate::feed::EVENTS) in the queue to the control loop, which slows the watches down when it is full.

mod ended;
mod raw;
mod watch;

use std::time::Duration;

use k8s_openapi::api::{core::v1, discovery::v1 as discovery, networking::v1 as networking};
use kube::{Client, api::ApiResource};
use serde_json::Value;

pub use self::watch::reflect;
pub(crate) use self::watch::triggered;
use crate::{
    decode::{self, Decoded, Defect},
    feed::Feed,
    model::{Node, Service, ServiceCidr, Slice},
    names::ObjectName,
    readiness::WATCH_SILENCE_LIMIT,
    relist::Object,
    reports::Reports,
};

/// Delay after the first error of a watch.
pub const RETRY_FIRST: Duration = Duration::from_millis(100);
/// Longest delay between two tries. Each is up to twice the one before; a random half keeps agents apart.
pub const RETRY_LIMIT: Duration = Duration::from_secs(5);
/// The API server ends each watch after this time; the next one goes on from there.
pub const WATCH_LIMIT: Duration = Duration::from_secs(60);
/// A watch that ends earlier, and has brought nothing, has failed: the next one comes after a delay.
pub const WATCH_LEAST: Duration = Duration::from_secs(1);
const _: () = assert!(
    WATCH_SILENCE_LIMIT.as_secs() > WATCH_LIMIT.as_secs(),
    "a quiet watch is ready"
);
/// A streamed list that is not complete and brings nothing for this long is given up for a paged one.
pub const STREAM_LIMIT: Duration = Duration::from_secs(10);
/// Objects in one page of a list: client-go's default.
pub const PAGE: u32 = 500;

/// Label of a Service that has no cluster IP, and of its slices.
const HEADLESS: &str = "service.kubernetes.io/headless";

/// What can be reflected.
pub trait Reflected: Object + Sized + Send + 'static {
    /// Whether an API server may have no such kind, which is then as if there were no object of it.
    const OPTIONAL: bool = false;
    /// Where the API has it.
    fn resource() -> ApiResource;
    /// Which of them are watched.
    fn selector() -> Option<String>;
    /// Reads the name of one object.
    ///
    /// # Errors
    /// It has none.
    fn name_of(object: &Value) -> Result<ObjectName, Defect> {
        decode::name(object)
    }
    /// Reads one object.
    ///
    /// # Errors
    /// It has no name.
    fn decode(object: &Value) -> Result<Decoded<Self>, Defect>;
}

impl Reflected for Service {
    fn resource() -> ApiResource {
        ApiResource::erase::<v1::Service>(&())
    }

    fn selector() -> Option<String> {
        Some(balanced())
    }

    fn decode(object: &Value) -> Result<Decoded<Self>, Defect> {
        decode::service(object)
    }
}

impl Reflected for Slice {
    fn resource() -> ApiResource {
        ApiResource::erase::<discovery::EndpointSlice>(&())
    }

    fn selector() -> Option<String> {
        Some(balanced())
    }

    fn decode(object: &Value) -> Result<Decoded<Self>, Defect> {
        decode::slice(object)
    }
}

impl Reflected for Node {
    fn resource() -> ApiResource {
        ApiResource::erase::<v1::Node>(&())
    }

    fn selector() -> Option<String> {
        None
    }

    fn name_of(object: &Value) -> Result<ObjectName, Defect> {
        decode::cluster_scoped(object)
    }

    fn decode(object: &Value) -> Result<Decoded<Self>, Defect> {
        decode::node(object)
    }
}

impl Reflected for ServiceCidr {
    const OPTIONAL: bool = true;

    fn resource() -> ApiResource {
        ApiResource::erase::<networking::ServiceCIDR>(&())
    }

    fn selector() -> Option<String> {
        None
    }

    fn name_of(object: &Value) -> Result<ObjectName, Defect> {
        decode::cluster_scoped(object)
    }

    fn decode(object: &Value) -> Result<Decoded<Self>, Defect> {
        decode::service_cidr(object)
    }
}

/// As kube-proxy: the slice controller copies both labels from the Service.
fn balanced() -> String {
    format!("!{},!{HEADLESS}", decode::SERVICE_PROXY_NAME)
}

/// Watches the kinds that plans are made of.
pub fn feeds(client: &Client, reports: &Reports) -> Vec<Feed> {
    vec![
        feed::<Service>(client, reports),
        feed::<Slice>(client, reports),
        feed::<Node>(client, reports),
    ]
}

/// Watches ServiceCIDRs.
pub fn service_cidrs(client: &Client, reports: &Reports) -> Feed {
    feed::<ServiceCidr>(client, reports)
}

fn feed<T: Reflected>(client: &Client, reports: &Reports) -> Feed {
    let (client, reports) = (client.clone(), reports.clone());
    Feed::new(|events| reflect::<T>(client, events, reports))
}
