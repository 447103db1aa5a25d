//! The eBPF programs: one thin entry for each hook.
//!
//! ```text
//! cgroup hooks ─▶ sock ─▶ lb_flow::socket ─▶ the call's address is replaced, or the call fails
//! tc hooks ─────▶ net ──▶ lb_flow::net ────▶ the packet is passed, translated, answered or dropped
//!                  └───── maps ─────┘
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `main` | the entries |
//! | `sock` | what happens at sockets |
//! | `net` | what happens to packets |
//! | `maps` | the maps, and what decisions read of them |
//! | `atomic` | atomic operations on map values |
//!
//! No code here may panic: a panic has no way out of a program, and the verifier refuses one that could.
#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![expect(
    internal_features,
    reason = "atomic operations that this target has, but `core::sync` does not offer for it"
)]

mod atomic;
mod maps;
mod net;
mod sock;

use aya_ebpf::{
    macros::{cgroup_sock, cgroup_sock_addr, classifier},
    programs::{SockAddrContext, SockContext, TcContext},
};

use crate::sock::{V4, V6};

/// `connect`, IPv4.
#[cgroup_sock_addr(connect4)]
pub fn connect4(context: SockAddrContext) -> sock::Return {
    sock::connect(V4, &context)
}

/// `connect`, IPv6.
#[cgroup_sock_addr(connect6)]
pub fn connect6(context: SockAddrContext) -> sock::Return {
    sock::connect(V6, &context)
}

/// `sendto`, `sendmsg` and `sendmmsg` with a destination, IPv4.
#[cgroup_sock_addr(sendmsg4)]
pub fn sendmsg4(context: SockAddrContext) -> sock::Return {
    sock::sendmsg(V4, &context)
}

/// `sendto`, `sendmsg` and `sendmmsg` with a destination, IPv6.
#[cgroup_sock_addr(sendmsg6)]
pub fn sendmsg6(context: SockAddrContext) -> sock::Return {
    sock::sendmsg(V6, &context)
}

/// `recvfrom`, `recvmsg` and `recvmmsg`, which show a source, IPv4.
#[cgroup_sock_addr(recvmsg4)]
pub fn recvmsg4(context: SockAddrContext) -> sock::Return {
    sock::recvmsg(V4, &context)
}

/// `recvfrom`, `recvmsg` and `recvmmsg`, which show a source, IPv6.
#[cgroup_sock_addr(recvmsg6)]
pub fn recvmsg6(context: SockAddrContext) -> sock::Return {
    sock::recvmsg(V6, &context)
}

/// `getpeername`, IPv4.
#[cgroup_sock_addr(getpeername4)]
pub fn getpeername4(context: SockAddrContext) -> sock::Return {
    sock::getpeername(V4, &context)
}

/// `getpeername`, IPv6.
#[cgroup_sock_addr(getpeername6)]
pub fn getpeername6(context: SockAddrContext) -> sock::Return {
    sock::getpeername(V6, &context)
}

/// After `bind`, IPv4.
#[cgroup_sock(post_bind4)]
pub fn post_bind4(context: SockContext) -> sock::Return {
    sock::bind(V4, &context)
}

/// After `bind`, IPv6.
#[cgroup_sock(post_bind6)]
pub fn post_bind6(context: SockContext) -> sock::Return {
    sock::bind(V6, &context)
}

/// A socket is closed.
#[cgroup_sock(sock_release)]
pub fn sock_release(context: SockContext) -> sock::Return {
    sock::release(&context)
}

/// What enters the node from the network.
#[classifier]
pub fn node_ingress(context: TcContext) -> net::Action {
    net::node_ingress(&context)
}

/// What leaves the node for the network.
#[classifier]
pub fn node_egress(context: TcContext) -> net::Action {
    net::node_egress(&context)
}

/// What enters the node from a pod.
#[classifier]
pub fn pod_ingress(context: TcContext) -> net::Action {
    net::pod_ingress(&context)
}

/// What leaves the node for a pod.
#[classifier]
pub fn pod_egress(context: TcContext) -> net::Action {
    net::pod_egress(&context)
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        /// Is nowhere: `cargo xtask ebpf build` refuses an object that still refers to it, which is one that can panic.
        fn a_program_that_can_panic() -> !;
    }
    // SAFETY: no arguments, no conditions, and never called.
    unsafe { a_program_that_can_panic() }
}

/// The kernel accepts only certain strings here; this one grants all helpers.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
