//! Reaching a Service.
pub(crate) mod clusterip_from_pod;
