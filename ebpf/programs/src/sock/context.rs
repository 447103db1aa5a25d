//! The only access to the context of a socket operation with an address.
//!
//! The verifier accepts loads and stores of `bpf_sock_addr` only at constant offsets and in certain sizes, and only
//! of the family that the program is attached for; every access here is volatile, of the whole field, so that the
//! compiler neither splits nor joins them.

use core::marker::PhantomData;

use aya_ebpf::{
    bindings::bpf_sock_addr,
    helpers::generated::{bpf_get_netns_cookie, bpf_get_socket_cookie},
    programs::SockAddrContext,
};
use lb_abi::{Address, FrontendKey, Port, SCTP, TCP, UDP};

/// A family of addresses: where the context holds them.
pub trait Family: Copy {
    /// Reads the address.
    ///
    /// # Safety
    /// The kernel's pointer, in a program that is attached for this family.
    unsafe fn read(context: *const bpf_sock_addr) -> Address;
    /// Writes the address.
    ///
    /// # Safety
    /// As of [`read`](Self::read).
    unsafe fn write(context: *mut bpf_sock_addr, address: Address);
}

/// IPv4.
#[derive(Clone, Copy)]
pub struct V4;

/// IPv6, and IPv4-mapped.
#[derive(Clone, Copy)]
pub struct V6;

impl Family for V4 {
    #[inline(always)]
    unsafe fn read(context: *const bpf_sock_addr) -> Address {
        // SAFETY: the caller's promise.
        Address::v4(unsafe { (&raw const (*context).user_ip4).read_volatile() }.to_ne_bytes())
    }

    #[inline(always)]
    unsafe fn write(context: *mut bpf_sock_addr, address: Address) {
        let [.., last] = address.words();
        // SAFETY: the caller's promise.
        unsafe { (&raw mut (*context).user_ip4).write_volatile(last) };
    }
}

impl Family for V6 {
    #[inline(always)]
    unsafe fn read(context: *const bpf_sock_addr) -> Address {
        // SAFETY: the caller's promise.
        unsafe {
            Address::from_words([
                (&raw const (*context).user_ip6[0]).read_volatile(),
                (&raw const (*context).user_ip6[1]).read_volatile(),
                (&raw const (*context).user_ip6[2]).read_volatile(),
                (&raw const (*context).user_ip6[3]).read_volatile(),
            ])
        }
    }

    #[inline(always)]
    unsafe fn write(context: *mut bpf_sock_addr, address: Address) {
        let [first, second, third, fourth] = address.words();
        // SAFETY: the caller's promise.
        unsafe {
            (&raw mut (*context).user_ip6[0]).write_volatile(first);
            (&raw mut (*context).user_ip6[1]).write_volatile(second);
            (&raw mut (*context).user_ip6[2]).write_volatile(third);
            (&raw mut (*context).user_ip6[3]).write_volatile(fourth);
        }
    }
}

/// A socket operation with an address: the destination, or for `recvmsg` and `getpeername` the peer.
#[derive(Clone, Copy)]
pub struct Operation<F>(*mut bpf_sock_addr, PhantomData<F>);

impl<F: Family> Operation<F> {
    /// Of a program's argument.
    #[inline(always)]
    pub fn new(context: &SockAddrContext) -> Self {
        Self(context.sock_addr, PhantomData)
    }

    /// Address, port and protocol; `None` for a protocol that no service has.
    #[inline(always)]
    pub fn address(self) -> Option<FrontendKey> {
        // SAFETY: the kernel's pointer, and a field that may be read.
        let protocol = protocol(unsafe { (&raw const (*self.0).protocol).read_volatile() })?;
        // SAFETY: as above. A field of four bytes, of which the port, in network order, is the first two.
        let port = unsafe { (&raw const (*self.0).user_port).read_volatile() };
        let [first, second, ..] = port.to_ne_bytes();
        Some(FrontendKey {
            // SAFETY: as above, and entries name the family that they are attached for.
            address: unsafe { F::read(self.0) },
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

    /// Cookie of the socket's network namespace: unique in the same way.
    #[inline(always)]
    pub fn netns(self) -> u64 {
        // SAFETY: the kernel's pointer.
        unsafe { bpf_get_netns_cookie(self.0.cast()) }
    }

    /// Puts another address and port in place of the operation's.
    #[inline(always)]
    pub fn rewrite(self, address: Address, port: Port) {
        let Port([first, second]) = port;
        // SAFETY: the kernel's pointer, and fields that may be written, each in its four bytes.
        unsafe {
            F::write(self.0, address);
            (&raw mut (*self.0).user_port).write_volatile(u32::from_ne_bytes([first, second, 0, 0]));
        }
    }
}

/// A socket's protocol, as it is in map keys; `None` for one that no service has.
#[inline(always)]
pub fn protocol(number: u32) -> Option<u8> {
    const TCP_NUMBER: u32 = TCP as u32;
    const UDP_NUMBER: u32 = UDP as u32;
    const SCTP_NUMBER: u32 = SCTP as u32;
    match number {
        TCP_NUMBER => Some(TCP),
        UDP_NUMBER => Some(UDP),
        SCTP_NUMBER => Some(SCTP),
        _ => None,
    }
}
