//! Nothing there: no endpoints, closed ports, ICMP, size.
pub(crate) mod clusterip_no_endpoints_refused;
pub(crate) mod udp_fragments;

/// Name of the area in the catalogue.
const AREA: &str = "E nothing there";
