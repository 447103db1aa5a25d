//! UDP and flow state.
pub(crate) mod pod_ip_reuse;
mod staging;
pub(crate) mod udp_backend_replaced;
pub(crate) mod udp_closed_socket_spares_others;
pub(crate) mod udp_connected_socket_released;
pub(crate) mod udp_deleted_no_misdelivery;
pub(crate) mod udp_healthy_flow_kept;
pub(crate) mod udp_not_ready_yet;
pub(crate) mod udp_reconnected_not_killed;
pub(crate) mod udp_socket_sticks;
pub(crate) mod udp_zero_and_back;

/// Name of the area in the catalogue.
const AREA: &str = "H UDP and flow state";
