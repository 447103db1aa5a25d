//! Routes: of what the stack would not take, or has routed to the frontend.

use aya_ebpf::{
    bindings::bpf_redir_neigh,
    helpers::generated::{bpf_fib_lookup, bpf_redirect_neigh},
};
use lb_abi::{TCP, UDP};
use lb_flow::net::{Headers, Hook, Outcome, Packet as _};

use super::{
    Scratch,
    skb::{INGRESS, Skb, Summed},
};

/// Index of the loopback device in every network namespace (`LOOPBACK_IFINDEX`).
pub(super) const LOOPBACK: u32 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// The question to `bpf_fib_lookup`, and its answer: `struct bpf_fib_lookup`, without its unions.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Route {
    /// Answer: of the next hop.
    family: u8,
    protocol: u8,
    source_port: [u8; 2],
    destination_port: [u8; 2],
    /// Question: bytes from the IP header on; 0: not compared. Answer: the MTU, if that is less.
    length: u16,
    /// Question: where the packet came in. Answer: where it goes out.
    device: u32,
    /// IPv4: type of service.
    service: u32,
    source: [u32; 4],
    /// Question: the destination. Answer: the next hop.
    destination: [u32; 4],
    tag: [u16; 2],
    links: [u8; 12],
}

/// Argument of `bpf_redirect_neigh`: `struct bpf_redir_neigh`, without its union.
#[repr(C)]
struct NextHop {
    family: u32,
    address: [u32; 4],
}

/// Answers of `bpf_fib_lookup`.
const SUCCESS: i64 = 0;
const NO_NEIGHBOUR: i64 = 7;
const TOO_LONG: i64 = 8;

/// Finds the route of what the packet will be. `Err`: there is none, or it does not take the packet.
#[inline(never)]
pub(super) fn find(hook: Hook, skb: Skb, scratch: &mut Scratch) -> Result<(), Outcome> {
    const { assert!(size_of::<Route>() == size_of::<aya_ebpf::bindings::bpf_fib_lookup>()) };
    let Scratch { work, route, .. } = scratch;
    let (headers, to) = (&work.headers, &work.to);
    route.protocol = to.protocol;
    route.source_port = to.source_port.0;
    route.destination_port = to.destination_port.0;
    let bytes = if skb.is_gso() {
        segment(skb, headers)
    } else {
        headers.bytes()
    };
    route.length = match bytes {
        0x1_0000.. => u16::MAX,
        // `as`: just compared.
        bytes => bytes as u16,
    };
    // What has come in nowhere is routed as the node's own is: rules have it as `iif lo` (ip-rule).
    route.device = if hook.inbound() {
        skb.device()
    } else {
        match skb.ingress_ifindex() {
            0 => LOOPBACK,
            device => device,
        }
    };
    route.service = 0;
    let (source, destination) = (to.source.words(), to.destination.words());
    if headers.v4 {
        let [first, ..] = headers.fixed;
        let [_, service, ..] = first.to_ne_bytes();
        route.family = AF_INET;
        route.service = u32::from_ne_bytes([service, 0, 0, 0]);
        let ([.., source], [.., destination]) = (source, destination);
        route.source = [source, 0, 0, 0];
        route.destination = [destination, 0, 0, 0];
    } else {
        route.family = AF_INET6;
        (route.source, route.destination) = (source, destination);
    }
    route.tag = [0; 2];
    route.links = [0; 12];
    let size = size_of::<Route>() as i32;
    // SAFETY: a pointer to that many bytes, of the layout that the helper takes.
    match unsafe { bpf_fib_lookup(skb.context(), (&raw mut *route).cast(), size, 0) } {
        SUCCESS | NO_NEIGHBOUR => Ok(()),
        TOO_LONG if work.headers.dont_fragment() => {
            work.mtu = u32::from(route.length);
            Err(Outcome::TooBig)
        }
        TOO_LONG => Err(Outcome::DroppedTooBig),
        _ => Err(Outcome::DroppedRoute),
    }
}

/// Bytes, from the IP header on, of what a device cuts the packet into; 0, which is not compared, where that is not known.
#[inline(always)]
fn segment(skb: Skb, headers: &Headers) -> u32 {
    /// `GSO_BY_FRAGS`: SCTP, in pieces of their own lengths.
    const OWN_LENGTHS: u32 = 0xffff;
    let size = skb.segment_size();
    let transport = match headers.tuple.protocol {
        TCP => match skb.byte(headers.l4 + 12) {
            Some(offset) => u32::from(offset >> 4) * 4,
            None => return 0,
        },
        UDP => 8,
        _ => return 0,
    };
    if size >= OWN_LENGTHS {
        return 0;
    }
    headers.l4.wrapping_sub(headers.l3) + transport + size
}

/// Sends the packet by the route that was found; the kernel finds the next hop's link address.
#[inline(always)]
pub(super) fn send(skb: Skb, route: &Route) -> Result<(), Outcome> {
    const { assert!(size_of::<NextHop>() == size_of::<bpf_redir_neigh>()) };
    skb.remove_tags()?;
    let mut next = NextHop {
        family: u32::from(route.family),
        address: route.destination,
    };
    let size = size_of::<NextHop>() as i32;
    // SAFETY: a pointer to that many bytes, of the layout that the helper takes. It does no more than note where to,
    // and of these arguments it refuses none.
    unsafe { bpf_redirect_neigh(route.device, (&raw mut next).cast(), size, 0) };
    Ok(())
}

/// Has the packet come in by the loopback device, which takes in what is from the node's own address, and from any other: it is
/// for this node. (By `accept_local` and `rp_filter` of that device, which the loader sets.)
#[inline(always)]
pub(super) fn come_in(skb: Skb) -> Result<(), Outcome> {
    skb.remove_tags()?;
    // That device's link address.
    skb.store(0, &[0; 3], Summed::Same)?;
    skb.redirect(LOOPBACK, INGRESS);
    Ok(())
}
