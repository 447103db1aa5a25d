//! API objects as JSON → the model's types, part by part.
//!
//! An object from the API may have unexpected parts: a field of a newer API server, a `null` list, an invalid address.
//! Decoding into a strict type would lose the whole object for one such field, and a whole list for one such object. So each
//! part is decoded by itself: valid parts are used, others are left out, each with a [`Defect`]. A file for each kind: `service`, `slice`,
//! `node`, `service_cidr`; `parts` has what several kinds contain.

mod node;
mod parts;
mod service;
mod service_cidr;
mod slice;

use std::fmt;

use serde_json::Value;

use self::parts::expected;
use crate::{
    findings::{Finding, Reason},
    names::ObjectName,
};

pub use self::{node::node, service::service, service_cidr::service_cidr, slice::slice};

/// Label of an EndpointSlice: the Service it belongs to.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label of a Service of another proxy (KEP-2447).
pub const SERVICE_PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// Label of a Node: its zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// A part of an object that was left out, or replaced by its default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// The reason.
    pub reason: Reason,
    /// Path of the field.
    pub field: String,
    /// What was expected, and what was found.
    pub problem: String,
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl From<Defect> for Finding {
    fn from(defect: Defect) -> Self {
        Self {
            reason: defect.reason,
            message: defect.to_string(),
        }
    }
}

/// An object, with its defects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded<T> {
    /// The valid parts.
    pub object: T,
    /// The other parts.
    pub defects: Vec<Defect>,
}

/// Namespace and name of an object.
///
/// # Errors
/// It has no name.
pub fn name(object: &Value) -> Result<ObjectName, Defect> {
    let part = |field: &str| object["metadata"][field].as_str().filter(|part| !part.is_empty());
    match (part("namespace"), part("name")) {
        (Some(namespace), Some(name)) => Ok(ObjectName::new(namespace, name)),
        (None, _) => Err(expected(
            "metadata.namespace",
            "a name",
            &object["metadata"]["namespace"],
        )),
        (_, None) => Err(expected("metadata.name", "a name", &object["metadata"]["name"])),
    }
}

/// Name of a cluster-scoped object: a Node, a ServiceCIDR.
///
/// # Errors
/// It has no name.
pub fn cluster_scoped(object: &Value) -> Result<ObjectName, Defect> {
    let name = &object["metadata"]["name"];
    let text = name.as_str().filter(|name| !name.is_empty());
    text.map(|name| ObjectName::new("", name))
        .ok_or_else(|| expected("metadata.name", "a name", name))
}
