//! What packet decisions read and write: a packet, and the maps. The kernel's in programs, a model's in tests.

use lb_abi::{Address, BackendId, Flow, FragmentKey, Ports, ServiceId, SourceKey, Tuple};

use crate::{
    Tables,
    net::{Attempt, Options, PacketState, reject::ANSWER_WORDS},
};

/// A packet, from its link-layer header on.
pub trait Packet: Copy {
    /// The protocol behind the link-layer header, or that of a tag in between (EtherType).
    fn protocol(self) -> [u8; 2];
    /// Its length in bytes.
    fn length(self) -> u32;
    /// Whether it was merged of several packets, or is to be cut into several (`gso_size` is not 0).
    fn is_gso(self) -> bool;
    /// So many words of four bytes each, as they lie there; `None` if they are not all there.
    fn words<const WORDS: usize>(self, offset: u32) -> Option<[u32; WORDS]>;
    /// Two bytes.
    fn half(self, offset: u32) -> Option<[u8; 2]>;
    /// One byte.
    fn byte(self, offset: u32) -> Option<u8>;
    /// `length` bytes, from 1 to [`QUOTE`](crate::net::reject::QUOTE), into words from number `AT` on; `false` if they
    /// are not all there.
    fn copy<const AT: usize>(self, offset: u32, length: u32, into: &mut [u32; ANSWER_WORDS]) -> bool;
    /// Calls [`options`](crate::net::options); in the kernel, so that a verifier goes through its loop once.
    fn options(self, at: u32, end: u32) -> Options;
    /// Calls [`has_jumbo`](crate::net::has_jumbo); as above.
    fn has_jumbo(self, at: u32, end: u32) -> bool;
}

/// What [`Node::insert`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Inserted {
    /// Nothing: the entry is now there.
    New,
    /// An entry with this key, which stays.
    Exists,
    /// No room.
    Full,
}

/// What [`Node::socket`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Socket {
    /// None.
    None,
    /// A socket that receives from any source: a listening TCP socket, or a UDP socket that is not connected.
    Bound,
    /// A socket whose peer is the source of the tuple: a TCP connection in any state, or a connected UDP socket.
    Connected,
}

/// The node: its maps, its addresses, its sockets.
pub trait Node: Tables + Copy {
    /// An entry of CONNTRACK.
    type Entry: Entry;

    /// Looks up CONNTRACK.
    fn flow(self, key: &Tuple) -> Option<Self::Entry>;
    /// Writes CONNTRACK if there is no such entry: of several processors that do so at once, for one only.
    fn insert(self, key: &Tuple, flow: &Flow) -> Inserted;
    /// Writes CONNTRACK, whatever is there; `false`: no room.
    fn store(self, key: &Tuple, flow: &Flow) -> bool;
    /// Removes from CONNTRACK.
    fn remove(self, key: &Tuple);
    /// Looks up FRAGMENTS.
    fn ports(self, key: &FragmentKey) -> Option<Ports>;
    /// Writes FRAGMENTS, whatever is there. That it fails costs the datagram its other fragments.
    fn keep_ports(self, key: &FragmentKey, ports: &Ports);
    /// Writes FRAGMENTS if there is no such entry: of several processors that do so at once, for one only.
    fn insert_ports(self, key: &FragmentKey, ports: &Ports) -> bool;
    /// Keeps the packet in HELD, by the key [`PacketState::held`]; `false`: it is too long, or there is no room.
    fn hold(self, work: &mut PacketState) -> bool;
    /// Has the packet come in once more, and after it those of its datagram that HELD has, from 0 to one below the number of the
    /// key [`PacketState::held`], which are removed there.
    fn release(self, work: &mut PacketState);
    /// Looks up SOURCES.
    fn admits(self, client: &SourceKey) -> bool;
    /// `Config.node_v4` or `Config.node_v6`.
    fn own_address(self, v4: bool) -> Address;
    /// `Config.snat_first` and `Config.snat_last`.
    fn snat_ports(self) -> (u16, u16);
    /// `Config.local_first` and `Config.local_last`.
    fn local_ports(self) -> (u16, u16);
    /// Whether an address is in one of `Config.service_ranges`.
    fn in_service_range(self, address: Address) -> bool;
    /// `Config.rejects_per_second`.
    fn rejects_per_second(self) -> u32;
    /// Whether the packet was sent by a process of the node: it has come in by no device.
    fn is_locally_generated(self) -> bool;
    /// Which local socket would get packets with this tuple.
    fn socket(self, tuple: &Tuple) -> Socket;
    /// Counts on [`Counter::SnatReused`](lb_abi::Counter::SnatReused).
    fn count_reused(self);
    /// Calls [`attempts`](crate::net::attempts), in the same way as the next.
    fn attempts(self, work: &mut PacketState) -> Attempt;
    /// Calls [`attempt`](crate::net::attempt); in the kernel, so that a verifier goes through it once.
    fn attempt(self, work: &mut PacketState) -> Attempt;
}

/// An entry of CONNTRACK, for as long as a packet is handled.
///
/// Other processors see it, too: each method is one access to it. What a connection *is* never changes in an entry
/// (`to`, `service`, `backend`, `flags`); entries are replaced as a whole.
pub trait Entry: Copy {
    /// [`Flow::to`].
    fn to(self) -> Tuple;
    /// [`Flow::service`].
    fn service(self) -> ServiceId;
    /// [`Flow::backend`].
    fn backend(self) -> BackendId;
    /// [`Flow::flags`].
    fn flags(self) -> u32;
    /// [`Flow::seen`].
    fn seen(self) -> u32;
    /// [`Flow::last_seen`].
    fn last_seen(self) -> u32;
    /// Adds to [`Flow::seen`], and renews [`Flow::last_seen`].
    fn note(self, seen: u32, now: u32);
    /// Marks the entry as one that is being replaced, by [`Flow::claim`]; `true` for the one that did so.
    fn take(self) -> bool;
}
