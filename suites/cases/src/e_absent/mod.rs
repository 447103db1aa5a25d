//! Nothing there: no endpoints, closed ports, ICMP, size.
//!
//! `emptied.rs`: Services that lose their endpoints. `closed_ports.rs`: what a Service does not have at its address.
mod closed_ports;
mod emptied;

pub(crate) mod backend_port_closed_visible;
pub(crate) mod clusterip_closed_port;
pub(crate) mod clusterip_no_endpoints_refused;
pub(crate) mod external_no_endpoints;
pub(crate) mod lb_closed_port_no_loop;
pub(crate) mod pmtu_toward_backend;
pub(crate) mod pmtu_toward_client;
pub(crate) mod slice_empty_drops_to_zero;
pub(crate) mod udp_fragments;

/// Name of the area in the catalogue.
const AREA: &str = "E nothing there";
