//! Load balancers, external IPs, and the addresses of nodes.
pub(crate) mod hcnp_agent_dead;
pub(crate) mod hcnp_truth;
pub(crate) mod lb_address_as_source;
pub(crate) mod lb_source_ranges;
pub(crate) mod lb_status_followed;
pub(crate) mod lb_vip_served;
pub(crate) mod node_addresses_followed;
pub(crate) mod shared_frontend_ip;
mod vips;

/// Name of the area in the catalogue.
const AREA: &str = "J load balancer, external IPs, source ranges, health check port";
