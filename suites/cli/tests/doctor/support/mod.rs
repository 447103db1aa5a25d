//! A node for a test, and the programs and maps on it.

mod crafted;
mod isolation;
pub(crate) mod node;

pub(crate) use self::{
    crafted::{Cilium, calico},
    isolation::isolated,
    node::Node,
};
