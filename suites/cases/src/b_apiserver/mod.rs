//! `default/kubernetes`, the agent's own API endpoint, and outages that began there.
//!
//! `kubernetes.rs`: the EndpointSlice of `default/kubernetes`, written by a case. `api_endpoint/`: an agent that
//! reaches the API through a Service.
mod api_endpoint;
mod kubernetes;

pub(crate) mod agent_own_vip_clusterip;
pub(crate) mod agent_own_vip_loadbalancer;
pub(crate) mod agent_own_vip_nodeport;
pub(crate) mod agent_own_vip_slice_recreated;
pub(crate) mod agent_start_while_vip_empty;
pub(crate) mod agent_start_with_stale_vip;
pub(crate) mod all_watches_cut;
pub(crate) mod empty_refill_no_restart;
pub(crate) mod kubesvc_empty_permitted;
pub(crate) mod kubesvc_one_of_n_leaves;
pub(crate) mod kubesvc_reachable;
pub(crate) mod kubesvc_refill_all_nodes;
pub(crate) mod kubesvc_shared_address_restart;

/// Name of the area in the catalogue.
const AREA: &str = "B default/kubernetes and the agent's own API endpoint";
