//! What exists before the first request.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{Store, WriteOptions};
use crate::{
    config::{Config, ConfigError},
    kinds::{Decoded, Kind, decode},
};

pub(super) fn run(store: &Store) -> Result<(), ConfigError> {
    for name in ["default", "kube-system", "kube-public"] {
        create(store, Kind::Namespace, "", json!({"metadata": {"name": name}}))?;
    }
    create(store, Kind::ServiceCidr, "", service_cidr(store.config()))?;
    create(store, Kind::Service, "default", service(store.config()))?;
    if store.config().advertise.is_empty() {
        // The first reconcile of a replica writes it.
        return Ok(());
    }
    let slice = slice(store.config(), &store.config().advertise);
    create(store, Kind::EndpointSlice, "default", slice)
}

/// Where cluster IPs are from, as upstream's controller for the default ServiceCIDR writes it.
fn service_cidr(config: &Config) -> Value {
    json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": config.service_cidrs}})
}

/// `default/kubernetes`, at the first address of each range.
pub(super) fn service(config: &Config) -> Value {
    // An IPv6 range counts its network address among its hosts, and that is not given out.
    let host = |cidr: &IpNet| cidr.hosts().find(|host| *host != cidr.network());
    let first = |cidr: &IpNet| host(cidr).map(|ip| ip.to_string());
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    json!({
        "metadata": {"name": "kubernetes", "labels": labels},
        "spec": {
            "clusterIP": config.service_cidrs.first().and_then(first),
            "ports": [{"name": "https", "port": 443, "targetPort": config.advertise_port}],
        },
    })
}

/// Its EndpointSlice with the addresses of the primary family.
pub(super) fn slice(config: &Config, addresses: &[IpAddr]) -> Value {
    let ipv4 = config
        .service_cidrs
        .first()
        .is_none_or(|cidr| cidr.addr().is_ipv4());
    let endpoints: Vec<Value> = addresses
        .iter()
        .filter(|address| address.is_ipv4() == ipv4)
        .map(|address| json!({"addresses": [address.to_string()], "conditions": {"ready": true}}))
        .collect();
    // Upstream's reconciler writes null where it writes no addresses, for the ports too.
    let ports = json!([{"name": "https", "port": config.advertise_port, "protocol": "TCP"}]);
    let ports = if endpoints.is_empty() { Value::Null } else { ports };
    json!({
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": if ipv4 { "IPv4" } else { "IPv6" },
        "endpoints": endpoints,
        "ports": ports,
    })
}

pub(super) fn create(store: &Store, kind: Kind, namespace: &str, object: Value) -> Result<(), ConfigError> {
    let what = kind.info().kind;
    let made = decode(kind, object)
        .and_then(|Decoded { object, .. }| store.create(kind, namespace, object, &WriteOptions::default()));
    made.map(drop)
        .map_err(|status| ConfigError::Bootstrap { what, status })
}
