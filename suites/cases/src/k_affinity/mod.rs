//! Session affinity.
pub(crate) mod affinity_backend_gone;
pub(crate) mod affinity_expires;
pub(crate) mod affinity_sticks;

use cluster::Family;
use serde_json::{Value, json};

/// Name of the area in the catalogue.
const AREA: &str = "K session affinity";
/// Ports of all backends: one for each shape of a case, so that no backend of one is another's.
const TARGETS: [u16; 2] = [8080, 8081];
/// Timeout of affinities that are not about it, the API's default.
const SECONDS: u32 = 10_800;

/// What the manifest of a Service of the area needs: policy `Cluster`, and the API's default timeout.
fn values(namespace: &str, axis: &str, family: Family, target: u16) -> Value {
    let service = format!("{axis}-{family}").to_lowercase();
    json!({
        "namespace": namespace, "service": service, "target": target, "policy": "Cluster", "seconds": SECONDS,
    })
}
