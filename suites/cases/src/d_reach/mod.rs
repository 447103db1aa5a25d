//! Reaching a Service.
pub(crate) mod clusterip_from_pod;
pub(crate) mod frontend_moves_owner;
