//! Hygiene: nothing left behind, nothing of another owner touched.
pub(crate) mod baseline_after_churn;
pub(crate) mod foreign_rules_kept;
pub(crate) mod fresh_agent_equal;
pub(crate) mod mode_switch_clean;

use cluster::Family;
use serde_json::{Value, json};

/// Name of the area in the catalogue.
const AREA: &str = "O hygiene";
/// Port of backends that have a network of their own.
const TARGET: u16 = 8080;

/// What the manifest of a Service of the area needs.
fn values(namespace: &str, name: &str, family: Family, target: u16) -> Value {
    let service = format!("{name}-{family}").to_lowercase();
    json!({ "namespace": namespace, "service": service, "target": target })
}
