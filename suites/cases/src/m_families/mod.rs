//! Two families, other protocols, other proxies.
pub(crate) mod dual_stack_both;
pub(crate) mod dual_stack_families_apart;
pub(crate) mod headless_not_proxied;
pub(crate) mod sctp_served;
pub(crate) mod service_proxy_name_ignored;

/// Name of the area in the catalogue.
const AREA: &str = "M families, SCTP, labels";
