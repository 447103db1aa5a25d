//! The socket programs.
//!
//! ```text
//! connect, sendmsg       context ─▶ lb_flow::socket::decide ─┬─▶ the backend's address, or ECONNREFUSED
//!                                                            ├─▶ CHOSEN (sendmsg): cookie, frontend → backend, for the next datagrams
//!                                                            ├─▶ SOCKET_REVNAT: cookie, backend → frontend; previous backend
//!                                                            └─▶ SOCKET_BACKEND: cookie → newest backend
//! recvmsg, getpeername   context ─▶ SOCKET_REVNAT ─▶ the frontend's address
//! sock_release           SOCKET_BACKEND ─▶ SOCKET_REVNAT ─▶ … ─▶ SOCKET_REVNAT, each removed, and CHOSEN of their frontends
//! post_bind              context ─▶ lb_flow::socket::is_reserved ─▶ EADDRINUSE
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `context` | the only access to the context of an operation with an address; [`V4`], [`V6`] |
//! | `translate` | connect, sendmsg |
//! | `revnat` | recvmsg, getpeername, sock_release: SOCKET_REVNAT and SOCKET_BACKEND |
//! | `bind` | post_bind, and the access to its context |
//!
//! One source serves both families: an IPv4 address and its IPv4-mapped form are the same [`lb_abi::Address`], and
//! what differs is where the context holds it.

mod bind;
mod context;
mod revnat;
mod translate;

use aya_ebpf::{Global, helpers::generated::bpf_set_retval};

pub use self::{
    bind::bind,
    context::{V4, V6},
    revnat::{getpeername, recvmsg, release},
    translate::{connect, sendmsg},
};

/// What a program of these hooks returns.
pub type Return = i32;

/// The operation goes on.
const PROCEED: Return = 1;
/// The operation fails; with EPERM, unless `bpf_set_retval` has set another error. Not allowed in `recvmsg` and
/// `getpeername`.
const FAIL: Return = 0;

/// Whether the kernel offers `bpf_set_retval` to these hooks; set by the loader, which has tried (at connect: kernels
/// give it to all of them or to none). Where it is 0, the verifier removes the call, and a refused client sees EPERM.
#[unsafe(no_mangle)]
static HAVE_SET_RETVAL: Global<u32> = Global::new(1);

/// Lets the operation fail with an error of `errno.h`, where the kernel offers that; otherwise with EPERM.
#[inline(always)]
fn fail(errno: i32) -> Return {
    if HAVE_SET_RETVAL.load() != 0 {
        // SAFETY: a negative errno, as the helper wants it.
        unsafe { bpf_set_retval(-errno) };
    }
    FAIL
}
