//! Nothing there, no endpoints, size.
pub(crate) mod clusterip_no_endpoints_refused;
pub(crate) mod udp_fragments;
