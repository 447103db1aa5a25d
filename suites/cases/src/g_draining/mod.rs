//! Readiness, termination, draining: hand-written EndpointSlices whose endpoints change their conditions, while their
//! backends serve all the while.
pub(crate) mod dead_node_excluded;
pub(crate) mod ready_flap_keeps_established;
pub(crate) mod returning_endpoint_active;
pub(crate) mod rollout_no_loss;
pub(crate) mod terminating_drains_established;
pub(crate) mod terminating_fallback;
pub(crate) mod terminating_not_preferred;
pub(crate) mod terminating_unserving_none;
pub(crate) mod unready_no_new;

use cluster::Family;
use serde_json::{Value, json};

/// Name of the area in the catalogue.
const AREA: &str = "G readiness, termination, draining";
/// Ports of all backends: one for each shape of a case, so that no backend of one is another's.
const TARGETS: [u16; 4] = [8080, 8081, 8082, 8083];

/// What the manifest of a Service of the area needs: policy `Cluster` and no affinity, for an axis of a family.
fn values(namespace: &str, axis: &str, family: Family, target: u16) -> Value {
    let service = format!("{axis}-{family}").to_lowercase().replace([' ', ','], "-");
    json!({
        "namespace": namespace, "service": service, "target": target,
        "policy": "Cluster", "affinity": "None", "distribution": null,
    })
}
