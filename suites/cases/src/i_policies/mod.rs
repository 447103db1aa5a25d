//! Traffic policies, and the source address that backends see.
pub(crate) mod etp_local_incluster;
pub(crate) mod etp_local_no_endpoint_none;
pub(crate) mod etp_local_source_kept;
pub(crate) mod itp_local;
pub(crate) mod itp_local_leaves_external;
pub(crate) mod policy_flip_live;
pub(crate) mod source_ip_clusterip;
mod staging;

/// Name of the area in the catalogue.
const AREA: &str = "I traffic policies and source address";
