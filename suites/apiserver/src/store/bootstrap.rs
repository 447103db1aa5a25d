//! What exists before the first request.

use serde_json::{Value, json};

use super::{Store, WriteOptions};
use crate::{
    config::ConfigError,
    kinds::{Decoded, Kind, decode},
};

pub(super) fn run(store: &Store) -> Result<(), ConfigError> {
    for name in ["default", "kube-system", "kube-public"] {
        create(store, Kind::Namespace, "", json!({"metadata": {"name": name}}))?;
    }
    let config = store.config();
    // The first address of each range, as upstream gives it to the API server's own service.
    let cluster_ips: Vec<String> = config
        .service_cidrs
        .iter()
        .filter_map(|cidr| cidr.hosts().next())
        .map(|ip| ip.to_string())
        .collect();
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    let service = json!({
        "metadata": {"name": "kubernetes", "labels": labels},
        "spec": {
            "clusterIP": cluster_ips[0],
            "ports": [{"name": "https", "port": 443, "targetPort": config.advertise_port}],
        },
    });
    create(store, Kind::Service, "default", service)?;
    let primary_v4 = config.service_cidrs[0].addr().is_ipv4();
    let addresses: Vec<Value> = config
        .advertise
        .iter()
        .filter(|address| address.is_ipv4() == primary_v4)
        .map(|address| json!({"addresses": [address.to_string()], "conditions": {"ready": true}}))
        .collect();
    // Upstream's reconciler writes no ports where it writes no addresses.
    let ports = if addresses.is_empty() {
        Value::Null
    } else {
        json!([{"name": "https", "port": config.advertise_port, "protocol": "TCP"}])
    };
    let slice = json!({
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": if primary_v4 { "IPv4" } else { "IPv6" },
        "endpoints": addresses,
        "ports": ports,
    });
    create(store, Kind::EndpointSlice, "default", slice)
}

fn create(store: &Store, kind: Kind, namespace: &str, object: Value) -> Result<(), ConfigError> {
    let what = kind.facts().kind;
    let made = decode(kind, object)
        .and_then(|Decoded { object, .. }| store.create(kind, namespace, object, WriteOptions::default()));
    made.map(drop)
        .map_err(|status| ConfigError::Bootstrap { what, status })
}
