//! UDP and flow state.
pub(crate) mod udp_socket_sticks;
