//! Nodes.

use serde_json::Value;

use super::{
    Decoded, Defect, ZONE, cluster_scoped,
    parts::{expected, ip, items, range},
};
use crate::model::Node;

/// A Node.
///
/// # Errors
/// It has no name.
pub fn node(object: &Value) -> Result<Decoded<Node>, Defect> {
    let name = cluster_scoped(object)?.name.to_string();
    let mut defects = Vec::new();
    let zone = match &object["metadata"]["labels"][ZONE] {
        Value::Null => None,
        Value::String(zone) => Some(zone.clone()).filter(|zone| !zone.is_empty()),
        found => {
            defects.push(expected(&format!("metadata.labels[{ZONE}]"), "a zone", found));
            None
        }
    };
    let (mut addresses, mut internal) = (Vec::new(), Vec::new());
    for (field, value) in items("status.addresses", &object["status"]["addresses"], &mut defects) {
        let address = &value["address"];
        match (ip(address), value["type"].as_str()) {
            (Some(address), kind) => {
                addresses.push(address);
                if kind == Some("InternalIP") {
                    internal.push(address);
                }
            }
            (None, Some("InternalIP" | "ExternalIP")) => {
                defects.push(expected(&format!("{field}.address"), "an IP address", address));
            }
            // A name.
            (None, _) => {}
        }
    }
    let mut pods = Vec::new();
    for (field, value) in items("spec.podCIDRs", &object["spec"]["podCIDRs"], &mut defects) {
        match range(value) {
            Some(range) => pods.push(range),
            None => defects.push(expected(&field, "a range such as 10.244.1.0/24", value)),
        }
    }
    Ok(Decoded {
        object: Node {
            name,
            zone,
            addresses,
            internal,
            pods,
        },
        defects,
    })
}
