//! Watches of the API → events.
//!
//! ```text
//! stream of a list, or pages ─▶ watch from its version ─▶ Raw ─▶ decode ─▶ Relist ─▶ events
//!         ▲                          │ broken, silent, over: from the last version
//!         └──────────────────────────┘ expired or unreadable: a new list
//! ```
//!
//! An object is taken as JSON and decoded part by part ([`crate::decode`]): a malformed one loses its malformed parts, and
//! affects neither the watch nor other objects. Only a line that is no JSON makes the watch begin again with a list, since
//! an event may be lost.
//!
//! As kube-proxy's, the watches leave out Services of another proxy and headless ones, with their slices. An object that
//! gets such a label arrives as deleted.
//!
//! Lists are consistent reads: no later list is older, whichever API server answers. They are streamed (KEP-3157) if the
//! server can, which saves it a copy of the list; otherwise paged. A server without streaming answers with an error, or
//! sends something else. If a streamed list ends early or stops, the server may not know streaming, or may have been
//! stopped: the next list is paged, and the one after it streamed again.
//!
//! An API server without ServiceCIDRs (before 1.33) answers 404: there are none, and it is tried again after
//! [`WATCH_LIMIT`].
//!
//! `watch`: list and watch of one kind; `raw`: objects as sent; `error`: why either ended, and how it goes on.
//!
//! # Bounds
//! [`RETRY_LIMIT`] between tries, after an answer that the client may delay for
//! [`RETRY_AFTER_LIMIT`](crate::api_access::RETRY_AFTER_LIMIT); [`WATCH_LIMIT`] for one watch, at least [`WATCH_LEAST`] for
//! one without events; [`STREAM_LIMIT`] of silence during a streamed list; [`PAGE`] objects in a page.

mod error;
mod raw;
mod watch;

use std::time::Duration;

use k8s_openapi::api::{core::v1, discovery::v1 as discovery, networking::v1 as networking};
use kube::{Client, api::ApiResource};
use rand::{Rng, SeedableRng as _, rngs::StdRng};
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
/// The API server ends each watch after this time; the next one continues it.
pub const WATCH_LIMIT: Duration = Duration::from_secs(60);
/// A watch that ends earlier without an event has failed: the next one comes after a delay.
pub const WATCH_LEAST: Duration = Duration::from_secs(1);
const _: () = assert!(
    WATCH_SILENCE_LIMIT.as_secs() > WATCH_LIMIT.as_secs(),
    "a quiet watch is ready"
);
/// An incomplete streamed list that is silent for this long is replaced by a paged one.
pub const STREAM_LIMIT: Duration = Duration::from_secs(10);
/// Objects in one page of a list: client-go's default.
pub const PAGE: u32 = 500;

/// Label of a Service that has no cluster IP, and of its slices.
const HEADLESS: &str = "service.kubernetes.io/headless";

/// A kind of object that is watched.
pub trait Reflected: Object + Sized + Send + 'static {
    /// Whether an API server may not know the kind. Then there is no object of it.
    const OPTIONAL: bool = false;
    /// Its API resource.
    fn resource() -> ApiResource;
    /// The label selector of the watch.
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

/// Watches of the kinds that plans are made of. `random`: seeds what keeps the tries of agents apart.
pub fn feeds(client: &Client, reports: &Reports, random: &mut impl Rng) -> Vec<Feed> {
    vec![
        feed::<Service>(client, reports, random),
        feed::<Slice>(client, reports, random),
        feed::<Node>(client, reports, random),
    ]
}

/// The watch of ServiceCIDRs, as [`feeds`].
pub fn service_cidrs(client: &Client, reports: &Reports, random: &mut impl Rng) -> Feed {
    feed::<ServiceCidr>(client, reports, random)
}

fn feed<T: Reflected>(client: &Client, reports: &Reports, random: &mut impl Rng) -> Feed {
    let (client, reports, random) = (client.clone(), reports.clone(), StdRng::from_rng(random));
    Feed::new(|events| reflect::<T>(client, events, reports, random))
}
