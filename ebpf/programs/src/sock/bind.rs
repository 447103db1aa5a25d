//! post_bind: refuses node ports to servers of the node itself, which no client would reach.

use aya_ebpf::{
    Global,
    bindings::bpf_sock,
    helpers::generated::{bpf_get_netns_cookie, bpf_probe_read_kernel},
    programs::SockContext,
};
use lb_abi::{Address, Counter, FrontendKey, Port};
use lb_flow::socket::is_reserved;

use super::{PROCEED, Return, V4, V6, context::protocol, fail};
use crate::maps::{Maps, count};

const EADDRINUSE: i32 = 98;

/// Where the kernel keeps whether a socket is IPV6_V6ONLY, which no context shows: `skc_ipv6only`, a bit of
/// `struct sock_common`, with which `struct sock` begins. Set by the loader, from the kernel's BTF: the byte's offset,
/// and the bit's mask. A mask of 0 (no BTF, `bpf_probe_read_kernel` not offered to `BPF_PROG_TYPE_CGROUP_SOCK`, which
/// takes CAP_PERFMON and a kernel that is not locked down): not known. Then the verifier removes the call, and an
/// IPV6_V6ONLY socket is refused at `::` as one that is not.
#[unsafe(no_mangle)]
static IPV6ONLY_OFFSET: Global<u32> = Global::new(0);
/// See [`IPV6ONLY_OFFSET`].
#[unsafe(no_mangle)]
static IPV6ONLY_MASK: Global<u32> = Global::new(0);

/// A family of addresses: where the context holds what a socket was bound to.
pub trait Family {
    /// Reads the address.
    ///
    /// # Safety
    /// The kernel's pointer, in a program that is attached for this family.
    unsafe fn read(context: *const bpf_sock) -> Address;
    /// Whether a socket of this family that is bound to the unspecified address also has IPv4's.
    fn is_dual(context: *const bpf_sock) -> bool;
}

/// A socket was bound, to a port that it has asked for or was given.
#[inline(always)]
pub fn bind<F: Family>(_family: F, context: &SockContext) -> Return {
    let context = context.sock;
    let Some(maps) = Maps::live() else { return PROCEED };
    // SAFETY: the kernel's pointer. 0 is no namespace's cookie.
    let netns = unsafe { bpf_get_netns_cookie(context.cast()) };
    if maps.config().is_none_or(|config| config.node_netns != netns) {
        return PROCEED;
    }
    // SAFETY: the kernel's pointer, and a field that may be read.
    let Some(protocol) = protocol(unsafe { (&raw const (*context).protocol).read_volatile() }) else {
        return PROCEED;
    };
    // SAFETY: as above. In host order, and below 2¹⁶.
    let port = unsafe { (&raw const (*context).src_port).read_volatile() } as u16;
    let bound = FrontendKey {
        // SAFETY: as above, and entries name the family that they are attached for.
        address: unsafe { F::read(context) },
        port: Port::new(port),
        protocol,
        pad: 0,
    };
    if is_reserved(&maps, &bound, || F::is_dual(context)) {
        count(Counter::BindRefused);
        return fail(EADDRINUSE);
    }
    PROCEED
}

impl Family for V4 {
    #[inline(always)]
    unsafe fn read(context: *const bpf_sock) -> Address {
        // SAFETY: the caller's promise.
        Address::v4(unsafe { (&raw const (*context).src_ip4).read_volatile() }.to_ne_bytes())
    }

    #[inline(always)]
    fn is_dual(_context: *const bpf_sock) -> bool {
        false
    }
}

impl Family for V6 {
    #[inline(always)]
    unsafe fn read(context: *const bpf_sock) -> Address {
        // SAFETY: the caller's promise.
        unsafe {
            Address::from_words([
                (&raw const (*context).src_ip6[0]).read_volatile(),
                (&raw const (*context).src_ip6[1]).read_volatile(),
                (&raw const (*context).src_ip6[2]).read_volatile(),
                (&raw const (*context).src_ip6[3]).read_volatile(),
            ])
        }
    }

    #[inline(always)]
    fn is_dual(context: *const bpf_sock) -> bool {
        let mask = IPV6ONLY_MASK.load();
        if mask == 0 {
            return true;
        }
        // The context of this type of program is the kernel's socket itself, for programs that may read the kernel's memory.
        let byte = (context as u64).wrapping_add(u64::from(IPV6ONLY_OFFSET.load()));
        let mut flags = 0_u8;
        // SAFETY: room for one byte; the helper checks what it reads.
        let error = unsafe { bpf_probe_read_kernel((&raw mut flags).cast(), 1, byte as *const _) };
        error != 0 || u32::from(flags) & mask == 0
    }
}
