//! API objects as JSON → the model's types, part by part.
//!
//! An object from the API can hold what this agent doesn't expect: a field that a newer API server allows, a
//! list that is `null`, an address that is none. Decoding a whole object into a strict type would lose all of it
//! for one such field, and a whole list for one such object. So each part stands for itself: what can be read is
//! used, what can't is left out and named in a [`Defect`].

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
/// Label of a Service that another proxy takes care of (KEP-2447).
pub const SERVICE_PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// Label of a Node: the zone that it is in.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// A part of an object that could not be used, and was left out, or taken for its default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// What kind of.
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

/// An object, as far as it could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded<T> {
    /// What could be read.
    pub object: T,
    /// What couldn't.
    pub defects: Vec<Defect>,
}

/// Namespace and name of an object.
///
/// # Errors
/// Without a name it can't be told from others.
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

/// Name of an object that is in no namespace: a Node, a ServiceCIDR.
///
/// # Errors
/// Without a name it can't be told from others.
pub fn cluster_scoped(object: &Value) -> Result<ObjectName, Defect> {
    let name = &object["metadata"]["name"];
    let text = name.as_str().filter(|name| !name.is_empty());
    text.map(|name| ObjectName::new("", name))
        .ok_or_else(|| expected("metadata.name", "a name", name))
}
