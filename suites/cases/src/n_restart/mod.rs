//! Restarts, lost APIs, scale: agents without an API, and agents under load.
//!
//! `listed.rs`: a Service, and what its EndpointSlice lists. `outage.rs`: Services whose endpoint is replaced while
//! agents do not learn it.
pub(super) mod listed;
mod outage;

pub(crate) mod api_outage_static;
pub(crate) mod atomic_endpoint_switch;
pub(crate) mod bootstrap_services_apart;
pub(crate) mod overflow_old_survive;
pub(crate) mod relist_prunes_removals;
pub(crate) mod restart_established_kept;
pub(crate) mod restart_no_new_failure;
pub(crate) mod restart_prunes_deleted;
pub(crate) mod scale_canary_latency;
pub(crate) mod state_wiped_recovers;
pub(crate) mod upgrade_and_back;
pub(crate) mod watch_stalled;
pub(crate) mod write_failure_retried;

/// Name of the area in the catalogue.
const AREA: &str = "N restart, API outage, scale";
