//! Nothing there, no endpoints.
pub(crate) mod clusterip_no_endpoints_refused;
