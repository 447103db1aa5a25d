//! ServiceCIDRs.

use serde_json::Value;

use super::{
    Decoded, Defect, cluster_scoped,
    parts::{expected, items, range},
};
use crate::model::ServiceCidr;

/// A ServiceCIDR. A range of all addresses is invalid: no other address could be reached.
///
/// # Errors
/// It has no name.
pub fn service_cidr(object: &Value) -> Result<Decoded<ServiceCidr>, Defect> {
    let name = cluster_scoped(object)?.name.to_string();
    let (mut ranges, mut defects) = (Vec::new(), Vec::new());
    for (field, value) in items("spec.cidrs", &object["spec"]["cidrs"], &mut defects) {
        match range(value).filter(|range| range.length() > 0) {
            Some(range) => ranges.push(range),
            None => defects.push(expected(&field, "a range such as 10.96.0.0/12", value)),
        }
    }
    Ok(Decoded {
        object: ServiceCidr { name, ranges },
        defects,
    })
}
