//! Release isolation: one backend shared by two Services.
//!
//! The *culprit* drops the backend; the *victim* must keep it. Both are Services without selectors, each with its own
//! EndpointSlice. Order of a case: the culprit drops it; fence; witness (the culprit is refused); a change of the
//! victim, the *trigger*; fence; probes of the victim for the hold time. Until then, nothing may write the victim's
//! EndpointSlice or restart the agent: either would heal the fault.
//!
//! `pairs.rs`: culprits and victims for every axis. `holders.rs`: Services that share backends in other ways.
//! `staging.rs`: their objects. `frontends.rs`: every frontend of the victim.
mod frontends;
mod holders;
mod pairs;
pub(crate) mod release_agent_restart_between;
pub(crate) mod release_all_frontends;
pub(crate) mod release_all_frontends_lb;
pub(crate) mod release_culprit_refilled;
pub(crate) mod release_established_flows;
pub(crate) mod release_every_trigger;
pub(crate) mod release_joined_key_collision;
pub(crate) mod release_name_lattice;
pub(crate) mod release_port_scoped;
pub(crate) mod release_prefix_condition;
pub(crate) mod release_prefix_empty_list;
pub(crate) mod release_prefix_null_slice;
pub(crate) mod release_prefix_object_deleted;
pub(crate) mod release_prefix_one_of_two;
pub(crate) mod release_same_name_two_namespaces;
pub(crate) mod release_victim_slice_rewritten;
mod staging;

/// Name of the area in the catalogue.
const AREA: &str = "A release isolation";
