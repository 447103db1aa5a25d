//! Topology: hints for zones and nodes.
pub(crate) mod hints_partial_ignored;
pub(crate) mod hints_same_node;
pub(crate) mod hints_unready_ignored;
pub(crate) mod hints_zone;
mod staging;

/// Name of the area in the catalogue.
const AREA: &str = "L topology";
