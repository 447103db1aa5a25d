//! Names, defaults, update rules and validation of each kind, by upstream's `pkg/apis/*/{v1/defaults,validation}`.
//!
//! `kind`: the names. `decode`: from a body to an object. `meta`, `names`: what all kinds share. `service`,
//! `service_addresses`, `service_check`, `endpoint_slice`, `pod`, `pod_check`: a kind each. `cluster`: Namespace, Node, Event,
//! ServiceCIDR. `config`: ConfigMap, Secret, ServiceAccount, Lease.

mod cluster;
mod config;
mod decode;
mod endpoint_slice;
mod kind;
mod meta;
mod names;
mod pod;
mod pod_check;
mod service;
mod service_addresses;
mod service_check;

pub(crate) use decode::{Decoded, decode};
pub(crate) use kind::{Kind, KindInfo};
pub(crate) use meta::reserved_metadata;
pub(crate) use service::{
    ServiceType, is_headless, ports, service_type, wants_health_port, wants_node_ports,
};
pub(crate) use service_addresses::check_addresses;

use serde_json::Value;

use crate::{config::Config, status::FieldError};

/// Which part of an object a request writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The object; its status is kept.
    Main,
    /// `/status`; its spec is kept.
    Status,
}

/// Brings a decoded object into the form in which upstream would store it, before addresses are assigned.
pub(crate) fn prepare_create(kind: Kind, object: &mut Value, config: &Config) {
    match kind {
        Kind::Service => service::prepare_create(object, config),
        Kind::EndpointSlice => endpoint_slice::normalize(object),
        Kind::Pod => pod::prepare_create(object),
        Kind::Namespace => cluster::prepare_namespace(object),
        Kind::Node => cluster::prepare_node(object),
        Kind::Event => cluster::prepare_event(object),
        Kind::Secret => config::prepare_secret(object),
        Kind::Lease => config::prepare_lease(object),
        Kind::ServiceCidr => cluster::prepare_service_cidr(object),
        Kind::ConfigMap | Kind::ServiceAccount => {}
    }
}

/// An object with the defaults of its kind, without fields that the server adds.
pub(crate) fn defaulted(kind: Kind, object: &Value) -> Value {
    let mut object = object.clone();
    match kind {
        Kind::Service => service::defaults(&mut object),
        Kind::EndpointSlice => endpoint_slice::normalize(&mut object),
        Kind::Pod => pod::defaulted(&mut object),
        Kind::Namespace => cluster::label_namespace(&mut object),
        Kind::Node => cluster::prepare_node(&mut object),
        Kind::Event => cluster::prepare_event(&mut object),
        Kind::Secret => config::prepare_secret(&mut object),
        Kind::Lease => config::prepare_lease(&mut object),
        Kind::ConfigMap | Kind::ServiceAccount | Kind::ServiceCidr => {}
    }
    object
}

/// Prepares an update. Fields that the request may not change are copied from `old`.
pub(crate) fn prepare_update(kind: Kind, new: &mut Value, old: &Value, part: Part, config: &Config) {
    if kind.info().status {
        let kept = if part == Part::Main { "status" } else { "spec" };
        match old.get(kept) {
            Some(value) => new[kept] = value.clone(),
            None => drop(new.as_object_mut().and_then(|map| map.remove(kept))),
        }
    }
    match kind {
        Kind::Service => service::prepare_update(new, old, config),
        Kind::EndpointSlice => endpoint_slice::normalize(new),
        Kind::Pod => pod::prepare_update(new, old),
        Kind::Node => cluster::prepare_node(new),
        Kind::Namespace => cluster::prepare_namespace_update(new, old),
        Kind::Event => cluster::prepare_event(new),
        Kind::Secret => config::prepare_secret(new),
        Kind::Lease => config::prepare_lease(new),
        Kind::ConfigMap | Kind::ServiceAccount | Kind::ServiceCidr => {}
    }
}

/// All errors that upstream would report (422). Updates have an `old` object.
pub(crate) fn check(kind: Kind, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = meta::check(kind, new, old);
    match kind {
        Kind::Service => service_check::check(new, &mut errors),
        Kind::EndpointSlice => endpoint_slice::check(new, old, &mut errors),
        Kind::Pod => pod_check::check(new, old, &mut errors),
        Kind::Node => cluster::check_node(new, old, &mut errors),
        Kind::Event => cluster::check_event(new, &mut errors),
        Kind::ConfigMap => config::check_config_map(new, &mut errors),
        Kind::Secret => config::check_secret(new, &mut errors),
        Kind::Lease => config::check_lease(new, &mut errors),
        Kind::ServiceCidr => cluster::check_service_cidr(new, old, &mut errors),
        Kind::Namespace | Kind::ServiceAccount => {}
    }
    errors
}

/// Whether an update raises `metadata.generation`.
pub(crate) fn next_generation(kind: Kind, new: &Value, old: &Value) -> bool {
    match kind {
        Kind::Pod => new.get("spec") != old.get("spec"),
        // Upstream's EndpointSlice has no spec: anything but metadata counts, and its labels.
        Kind::EndpointSlice => {
            ["endpoints", "ports", "addressType"]
                .iter()
                .any(|field| new.get(field) != old.get(field))
                || new.pointer("/metadata/labels") != old.pointer("/metadata/labels")
        }
        _ => false,
    }
}
