//! The node, as decisions see it: maps, addresses, sockets.

use core::hint::black_box;

use aya_ebpf::{
    bindings::bpf_sock,
    helpers::generated::{bpf_sk_lookup_udp, bpf_sk_release, bpf_skc_lookup_tcp},
};
use lb_abi::{
    Address, Affinity, AffinityKey, Backend, BackendId, Counter, Flow, FragmentKey, Frontend, FrontendKey,
    Ports, Service, ServiceId, SlotKey, SourceKey, TCP, Tuple, UDP,
};
use lb_flow::{
    Tables,
    net::{Attempt, CLAIMED, Entry, Inserted, Node, PacketState, Socket},
};

use super::{global, skb::Skb};
use crate::{
    atomic,
    maps::{CONNTRACK, FRAGMENTS, Maps, count},
};

/// `BPF_NOEXIST`: write only what is not there.
const NOEXIST: u64 = 1;
/// -EEXIST.
const EXISTS: i32 = -17;

/// The node that a packet is at.
#[derive(Clone, Copy)]
pub struct Local {
    maps: Maps,
    skb: Skb,
}

impl Local {
    /// The node, by its maps, and by the packet, which shows the network namespace.
    #[inline(always)]
    pub fn new(maps: Maps, skb: Skb) -> Self {
        Self { maps, skb }
    }
}

/// A tuple as the kernel looks sockets up.
#[repr(C)]
struct SocketTuple<const WORDS: usize> {
    source: [u32; WORDS],
    destination: [u32; WORDS],
    source_port: [u8; 2],
    destination_port: [u8; 2],
}

impl Local {
    #[inline(always)]
    fn socket_of<const WORDS: usize>(self, protocol: u8, mut tuple: SocketTuple<WORDS>) -> Socket {
        /// `BPF_F_CURRENT_NETNS`.
        const CURRENT_NETNS: u64 = u64::MAX;
        /// `TCP_ESTABLISHED`, which is also the state of a connected UDP socket.
        const ESTABLISHED: u32 = 1;
        /// `TCP_LISTEN`.
        const LISTEN: u8 = 10;
        let size = size_of::<SocketTuple<WORDS>>() as u32;
        let pointer = (&raw mut tuple).cast();
        let (socket, connected) = match protocol {
            TCP => {
                // SAFETY: a tuple of one of the sizes that the helper takes.
                let socket: *mut bpf_sock =
                    unsafe { bpf_skc_lookup_tcp(self.skb.context(), pointer, size, CURRENT_NETNS, 0) };
                if socket.is_null() {
                    return Socket::None;
                }
                // One byte here and four below: the verifier takes one type of socket for each load instruction, and loads of
                // the same width would be merged.
                // SAFETY: a socket that was found, and a field that may be read in part.
                let state = unsafe { (&raw const (*socket).state).cast::<u8>().read_volatile() };
                (socket, state != LISTEN)
            }
            UDP => {
                // SAFETY: as above.
                let socket: *mut bpf_sock =
                    unsafe { bpf_sk_lookup_udp(self.skb.context(), pointer, size, CURRENT_NETNS, 0) };
                if socket.is_null() {
                    return Socket::None;
                }
                // SAFETY: a socket that was found, and a field that may be read.
                let state = unsafe { (&raw const (*socket).state).read_volatile() };
                (socket, state == ESTABLISHED)
            }
            _ => return Socket::None,
        };
        // SAFETY: a socket that was found above and is not used after this.
        unsafe { bpf_sk_release(socket.cast()) };
        if connected {
            Socket::Connected
        } else {
            Socket::Bound
        }
    }
}

// An element of CONNTRACK that was found may be given to another connection while a program still uses it, if the map is
// full and this one is the least recently used, which an element just looked up is not; or if another processor removes
// or replaces it. What can come of it is bounded: `to` and the other constants are read at once, and lead a packet of
// the old connection where that went; `seen` and `last_seen` of another may be renewed, which makes it last longer or
// (RESET) be over 10 s after its last packet, as it never is while it sends; and `claim` is a number of the entry's own,
// so that no processor replaces an entry that it has not read.
impl Node for Local {
    type Entry = Element;

    #[inline(always)]
    fn flow(self, key: &Tuple) -> Option<Element> {
        CONNTRACK.get_ptr_mut(key).map(Element)
    }

    #[inline(always)]
    fn insert(self, key: &Tuple, flow: &Flow) -> Inserted {
        match CONNTRACK.insert(key, flow, NOEXIST) {
            Ok(()) => Inserted::New,
            Err(EXISTS) => Inserted::Exists,
            Err(_) => Inserted::Full,
        }
    }

    #[inline(always)]
    fn store(self, key: &Tuple, flow: &Flow) -> bool {
        CONNTRACK.insert(key, flow, 0).is_ok()
    }

    #[inline(always)]
    fn remove(self, key: &Tuple) {
        // It fails where another processor was first.
        let _ = CONNTRACK.remove(key);
    }

    #[inline(always)]
    fn ports(self, key: &FragmentKey) -> Option<Ports> {
        // SAFETY: copied at once; should it be given to another datagram during this copy, as 8 192 others were first
        // fragmented meanwhile, a fragment goes where that one's go, and is not put together with it.
        unsafe { FRAGMENTS.get(key) }.copied()
    }

    #[inline(always)]
    fn keep_ports(self, key: &FragmentKey, ports: &Ports) {
        let _ = FRAGMENTS.insert(key, ports, 0);
    }

    #[inline(always)]
    fn insert_ports(self, key: &FragmentKey, ports: &Ports) -> bool {
        FRAGMENTS.insert(key, ports, NOEXIST).is_ok()
    }

    #[inline(always)]
    fn hold(self, work: &mut PacketState) -> bool {
        // As of `attempt`.
        black_box(&raw mut *work);
        global::hold(self.skb)
    }

    #[inline(always)]
    fn release(self, work: &mut PacketState) {
        // As of `attempt`.
        black_box(&raw mut *work);
        global::release(self.skb);
    }

    #[inline(always)]
    fn admits(self, client: &SourceKey) -> bool {
        self.maps.admits(client)
    }

    #[inline(always)]
    fn own_address(self, v4: bool) -> Address {
        match self.maps.config() {
            Some(config) if v4 => config.node_v4,
            Some(config) => config.node_v6,
            None => Address::UNSPECIFIED_V6,
        }
    }

    #[inline(always)]
    fn snat_ports(self) -> (u16, u16) {
        match self.maps.config() {
            Some(config) => (config.snat_first, config.snat_last),
            None => (0, 0),
        }
    }

    #[inline(always)]
    fn local_ports(self) -> (u16, u16) {
        match self.maps.config() {
            Some(config) => (config.local_first, config.local_last),
            None => (1, 0),
        }
    }

    #[inline(always)]
    fn in_service_range(self, address: Address) -> bool {
        self.maps.in_service_range(address)
    }

    #[inline(always)]
    fn rejects_per_second(self) -> u32 {
        match self.maps.config() {
            Some(config) => config.rejects_per_second,
            None => 0,
        }
    }

    #[inline(always)]
    fn is_locally_generated(self) -> bool {
        self.skb.ingress_ifindex() == 0
    }

    #[inline(always)]
    fn socket(self, tuple: &Tuple) -> Socket {
        let (source_port, destination_port) = (tuple.source_port.0, tuple.destination_port.0);
        let (source, destination) = (tuple.source.words(), tuple.destination.words());
        if tuple.source.is_v4() {
            let ([.., source], [.., destination]) = (source, destination);
            let (source, destination) = ([source], [destination]);
            let key = SocketTuple {
                source,
                destination,
                source_port,
                destination_port,
            };
            return self.socket_of(tuple.protocol, key);
        }
        self.socket_of(
            tuple.protocol,
            SocketTuple {
                source,
                destination,
                source_port,
                destination_port,
            },
        )
    }

    #[inline(always)]
    fn count_reused(self) {
        count(Counter::SnatReused);
    }

    #[inline(always)]
    fn attempts(self, work: &mut PacketState) -> Attempt {
        // As of `attempt`.
        black_box(&raw mut *work);
        global::attempts(self.skb)
    }

    #[inline(always)]
    fn attempt(self, work: &mut PacketState) -> Attempt {
        // The global function reads and writes it by the scratch map, which the compiler does not see.
        black_box(&raw mut *work);
        global::attempt(self.skb)
    }
}

/// An element of CONNTRACK, which other processors have as well.
#[derive(Clone, Copy)]
pub struct Element(*mut Flow);

impl Entry for Element {
    #[inline(always)]
    fn to(self) -> Tuple {
        // SAFETY: the pointer is to an element of the map, and never changes there (see above).
        unsafe { (*self.0).to }
    }

    #[inline(always)]
    fn service(self) -> ServiceId {
        // SAFETY: as above.
        unsafe { (*self.0).service }
    }

    #[inline(always)]
    fn backend(self) -> BackendId {
        // SAFETY: as above.
        unsafe { (*self.0).backend }
    }

    #[inline(always)]
    fn flags(self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.0).flags }
    }

    #[inline(always)]
    fn seen(self) -> u32 {
        // SAFETY: as above; written by others meanwhile, and read once.
        unsafe { (&raw const (*self.0).seen).read_volatile() }
    }

    #[inline(always)]
    fn last_seen(self) -> u32 {
        // SAFETY: as above.
        unsafe { (&raw const (*self.0).last_seen).read_volatile() }
    }

    #[inline(always)]
    fn note(self, seen: u32, now: u32) {
        // Not written where it is as it should be: what is only read, many processors have at once.
        if self.seen() & seen != seen {
            // SAFETY: as above; four aligned bytes.
            unsafe { atomic::or(&raw mut (*self.0).seen, seen) };
        }
        if self.last_seen() != now {
            // SAFETY: as above; one store.
            unsafe { (&raw mut (*self.0).last_seen).write_volatile(now) };
        }
    }

    #[inline(always)]
    fn take(self) -> bool {
        // SAFETY: as above; eight aligned bytes.
        let claim = unsafe { (&raw const (*self.0).claim).read_volatile() };
        // SAFETY: as above.
        claim != CLAIMED && unsafe { atomic::replace(&raw mut (*self.0).claim, claim, CLAIMED) }
    }
}

impl Tables for Local {
    #[inline(always)]
    fn address(&self, address: &Address) -> Option<u32> {
        self.maps.address(address)
    }

    #[inline(always)]
    fn frontend(&self, key: &FrontendKey) -> Option<Frontend> {
        self.maps.frontend(key)
    }

    #[inline(always)]
    fn service(&self, id: ServiceId) -> Option<Service> {
        self.maps.service(id)
    }

    #[inline(always)]
    fn slot(&self, key: &SlotKey) -> Option<BackendId> {
        self.maps.slot(key)
    }

    #[inline(always)]
    fn backend(&self, id: BackendId) -> Option<Backend> {
        self.maps.backend(id)
    }

    #[inline(always)]
    fn affinity(&self, key: &AffinityKey) -> Option<Affinity> {
        self.maps.affinity(key)
    }

    #[inline(always)]
    fn keep_affinity(&self, key: &AffinityKey, value: &Affinity) {
        self.maps.keep_affinity(key, value);
    }

    #[inline(always)]
    fn random(&self) -> u32 {
        self.maps.random()
    }

    #[inline(always)]
    fn now(&self) -> u32 {
        self.maps.now()
    }
}
