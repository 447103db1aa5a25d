//! `default/kubernetes`, the agent's own way to the API, and what happened to Services there.
//!
//! `kubernetes.rs`: the slice of `default/kubernetes` in the hands of a case; `own_way/`: an agent that reaches the API by a
//! Service.
mod kubernetes;
mod own_way;

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
