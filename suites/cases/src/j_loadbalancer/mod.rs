//! Load balancers, external IPs, and the addresses of nodes.
pub(crate) mod lb_address_as_source;
pub(crate) mod node_addresses_followed;
