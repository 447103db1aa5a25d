//! Release isolation, one backend shared by two Services.
mod holders;
mod pairs;
pub(crate) mod release_agent_restart_between;
pub(crate) mod release_culprit_refilled;
pub(crate) mod release_established_flows;
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
