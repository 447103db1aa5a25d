//! The packet programs.

use aya_ebpf::programs::TcContext;

use crate::maps::Maps;

/// What a program of these hooks returns.
pub type Action = i32;

/// `TC_ACT_OK`: the packet goes on.
const OK: Action = 0;

/// What enters the node from the network.
#[inline(always)]
pub fn node_ingress(_context: &TcContext) -> Action {
    pass()
}

/// What leaves the node for the network.
#[inline(always)]
pub fn node_egress(_context: &TcContext) -> Action {
    pass()
}

/// What enters the node from a pod.
#[inline(always)]
pub fn pod_ingress(_context: &TcContext) -> Action {
    pass()
}

/// What leaves the node for a pod.
#[inline(always)]
pub fn pod_egress(_context: &TcContext) -> Action {
    pass()
}

#[inline(always)]
fn pass() -> Action {
    let _ = Maps::live();
    OK
}
