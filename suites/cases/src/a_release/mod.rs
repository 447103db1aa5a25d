//! Release isolation, one backend shared by two Services.
pub(crate) mod release_prefix_empty_list;
pub(crate) mod release_prefix_null_slice;
mod staging;
