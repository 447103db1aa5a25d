//! UDP and flow state.
pub(crate) mod udp_socket_sticks;

/// Name of the area in the catalogue.
const AREA: &str = "H UDP and flow state";
