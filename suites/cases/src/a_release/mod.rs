//! Release isolation, one backend shared by two Services.
mod holders;
pub(crate) mod release_established_flows;
pub(crate) mod release_joined_key_collision;
pub(crate) mod release_name_lattice;
pub(crate) mod release_prefix_empty_list;
pub(crate) mod release_prefix_null_slice;
pub(crate) mod release_prefix_object_deleted;
pub(crate) mod release_prefix_one_of_two;
pub(crate) mod release_same_name_two_namespaces;
mod staging;
