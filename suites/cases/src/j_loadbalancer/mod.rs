//! Load balancers, external IPs, and the addresses of nodes.
pub(crate) mod lb_address_as_source;
pub(crate) mod node_addresses_followed;

/// Name of the area in the catalogue.
const AREA: &str = "J load balancer, external IPs, source ranges, health check port";
