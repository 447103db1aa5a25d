//! Reaching a Service.
pub(crate) mod clusterip_from_pod;
pub(crate) mod frontend_moves_owner;
pub(crate) mod own_connection_untouched;
pub(crate) mod reply_from_frontend;

/// Name of the area in the catalogue.
const AREA: &str = "D reaching a Service";
