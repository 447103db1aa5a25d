//! The only access to the context of a socket operation.
//!
//! The verifier accepts loads and stores of `bpf_sock_addr` only at constant offsets and in certain sizes; every
//! access here is volatile, of the whole field, so that the compiler neither splits nor joins them.

use aya_ebpf::{
    Global,
    bindings::bpf_sock_addr,
    helpers::generated::{bpf_get_socket_cookie, bpf_set_retval},
    programs::SockAddrContext,
};
use lb_abi::{Address, FrontendKey, Port, TCP, UDP};

/// What a program of these hooks returns.
pub type Return = i32;

/// The operation goes on.
pub const PROCEED: Return = 1;
/// The operation fails; with EPERM, unless `bpf_set_retval` has said otherwise. Not allowed in `recvmsg` and
/// `getpeername`.
const FAIL: Return = 0;

const ECONNREFUSED: i32 = 111;

/// Whether the kernel offers `bpf_set_retval` to these hooks; set by the loader, which has tried. Where it is 0,
/// the verifier removes the call, and a refused client sees EPERM.
#[unsafe(no_mangle)]
static HAVE_SET_RETVAL: Global<u32> = Global::new(1);

/// A socket operation with an IPv4 address: the destination, or for `recvmsg` and `getpeername` the peer.
#[derive(Clone, Copy)]
pub struct Operation(*mut bpf_sock_addr);

impl Operation {
    /// Of a program's argument.
    #[inline(always)]
    pub fn new(context: &SockAddrContext) -> Self {
        Self(context.sock_addr)
    }

    /// Address, port and protocol; `None` if it is neither TCP nor UDP.
    #[inline(always)]
    pub fn destination(self) -> Option<FrontendKey> {
        // SAFETY: the kernel's pointer, and a field that may be read.
        let protocol = match unsafe { (&raw const (*self.0).protocol).read_volatile() } {
            6 => TCP,
            17 => UDP,
            _ => return None,
        };
        // SAFETY: as above.
        let address = unsafe { (&raw const (*self.0).user_ip4).read_volatile() };
        // SAFETY: as above. A field of four bytes, of which the port, in network order, is the first two.
        let port = unsafe { (&raw const (*self.0).user_port).read_volatile() };
        let [first, second, ..] = port.to_ne_bytes();
        Some(FrontendKey {
            address: Address::v4(address.to_ne_bytes()),
            port: Port([first, second]),
            protocol,
            pad: 0,
        })
    }

    /// The socket's cookie: unique for as long as the machine runs.
    #[inline(always)]
    pub fn cookie(self) -> u64 {
        // SAFETY: the kernel's pointer.
        unsafe { bpf_get_socket_cookie(self.0.cast()) }
    }

    /// Puts another address and port in place of the operation's.
    #[inline(always)]
    pub fn rewrite(self, address: Address, port: Port) {
        let Port([first, second]) = port;
        // SAFETY: the kernel's pointer, and fields that may be written, each in its four bytes.
        unsafe {
            (&raw mut (*self.0).user_ip4).write_volatile(u32::from_ne_bytes(address.last4()));
            (&raw mut (*self.0).user_port).write_volatile(u32::from_ne_bytes([first, second, 0, 0]));
        }
    }

    /// Lets the operation fail with ECONNREFUSED.
    #[inline(always)]
    pub fn refuse(self) -> Return {
        if HAVE_SET_RETVAL.load() != 0 {
            // SAFETY: a negative errno, as the helper wants it.
            unsafe { bpf_set_retval(-ECONNREFUSED) };
        }
        FAIL
    }
}
