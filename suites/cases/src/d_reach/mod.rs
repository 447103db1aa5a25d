//! Reaching a Service.
pub(crate) mod clusterip_from_pod;
pub(crate) mod clusterip_reused;
pub(crate) mod frontend_moves_owner;
pub(crate) mod frontends_not_crossed;
pub(crate) mod one_backend;
pub(crate) mod own_connection_untouched;
pub(crate) mod reply_from_frontend;
pub(crate) mod same_port_tcp_udp;
pub(crate) mod service_change_live;
pub(crate) mod service_deleted_vip_dead;
pub(crate) mod service_without_selector;
pub(crate) mod spread_all_endpoints;

/// Name of the area in the catalogue.
const AREA: &str = "D reaching a Service";
