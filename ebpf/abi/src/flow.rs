//! What the packet programs write: connections, fragments, clients with affinity.

use crate::{Address, BackendId, Port, ServiceId};

/// Key of CONNTRACK: what tells packets of one direction of a connection from others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C)]
pub struct Tuple {
    /// Address of the sender.
    pub source: Address,
    /// Address of the receiver.
    pub destination: Address,
    /// Port of the sender.
    pub source_port: Port,
    /// Port of the receiver.
    pub destination_port: Port,
    /// [`TCP`](crate::TCP), [`UDP`](crate::UDP) or [`SCTP`](crate::SCTP).
    pub protocol: u8,
    /// Zero.
    pub pad: [u8; 3],
}

impl Tuple {
    /// Of the packets in the other direction.
    #[inline(always)]
    pub const fn inverse(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            protocol: self.protocol,
            pad: [0; 3],
        }
    }
}

/// Value of CONNTRACK.
///
/// A connection has two entries, each of which names the other: the key of an entry is the inverse of what the other
/// one's packets become. `seen` and `last_seen` of the client's entry count for both; the other one's stay as they
/// were made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Flow {
    /// What the tuple becomes.
    pub to: Tuple,
    /// What has been [`seen`] of the connection; bits are only ever set.
    pub seen: u32,
    /// When a packet was seen last, in seconds since the machine started (CLOCK_MONOTONIC).
    pub last_seen: u32,
    /// By which service port the backend was chosen.
    pub service: ServiceId,
    /// The backend.
    pub backend: BackendId,
    /// [`flow_flags`].
    pub flags: u32,
    /// Zero.
    pub pad: u32,
    /// A number of this entry's own. A processor that replaces a connection which is over first changes it to `u64::MAX` by
    /// compare-and-exchange, so that only one does; an entry with `u64::MAX` is being replaced.
    pub claim: u64,
}

/// Flags of a [`Flow`].
pub mod flow_flags {
    /// Of the answers: from the backend to the client.
    pub const REPLY: u32 = 1;
    /// The client's source address is not what the backend sees; the program that translates also routes.
    pub const SNAT: u32 = 1 << 1;
    /// Of datagrams to the node's own: one of its sockets has sent to their source from a port that is a node port, too. They
    /// are left alone. `to` is what they are, and there is one entry only.
    pub const OWN: u32 = 1 << 2;
    /// The client's source port is not what the backend sees; its address is.
    pub const OTHER_PORT: u32 = 1 << 3;
    /// All of them.
    pub const ALL: u32 = REPLY | SNAT | OWN | OTHER_PORT;
}

/// What has been seen of a connection: TCP flags, or the chunks of SCTP that mean the same. Bits are set, never
/// cleared, so that two processors can set them at once.
pub mod seen {
    /// The client has opened (SYN, INIT).
    pub const OPEN: u32 = 1;
    /// The backend has answered with anything.
    pub const ANSWER: u32 = 1 << 1;
    /// The client has finished (FIN, SHUTDOWN).
    pub const CLIENT_FIN: u32 = 1 << 2;
    /// The backend has finished.
    pub const BACKEND_FIN: u32 = 1 << 3;
    /// One of them has reset it (RST, ABORT; SHUTDOWN COMPLETE).
    pub const RESET: u32 = 1 << 4;
    /// Neither the opening nor a reset: the client has sent on, or the backend has acknowledged it (TCP's ACK).
    pub const ESTABLISHED: u32 = 1 << 5;
    /// All of them.
    pub const ALL: u32 = OPEN | ANSWER | CLIENT_FIN | BACKEND_FIN | RESET | ESTABLISHED;
}

/// Key of FRAGMENTS: a datagram that was sent in pieces, of which only the first has ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C)]
pub struct FragmentKey {
    /// Address of the sender.
    pub source: Address,
    /// Address of the receiver.
    pub destination: Address,
    /// Identification of the datagram, as in the packet: 16 bits of it for IPv4, in the first two bytes.
    pub id: [u8; 4],
    /// Its protocol.
    pub protocol: u8,
    /// Zero.
    pub pad: [u8; 3],
}

/// Value of FRAGMENTS.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C)]
pub struct Ports {
    /// From which port; 0, as `destination`: the first fragment has not come yet.
    pub source: Port,
    /// To which port.
    pub destination: Port,
    /// When the first fragment came, or the first of those that are held, in seconds since the machine started.
    pub seconds: u32,
    /// How many fragments are held until the first comes; HELD has them by number, from 0 on.
    pub held: u32,
}

/// Key of HELD: a fragment that came before the first of its datagram.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C)]
pub struct HeldKey {
    /// The datagram.
    pub datagram: FragmentKey,
    /// Which of those that are held, in the order in which they came.
    pub number: u32,
}

/// Most bytes of a frame that is held, a power of two.
pub const HELD_BYTES: usize = 2048;

/// Value of HELD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Held {
    /// How many of the bytes there are.
    pub length: u32,
    /// When it came, in seconds since the machine started.
    pub seconds: u32,
    /// The frame, from its link-layer header on.
    pub bytes: [u8; HELD_BYTES],
}

/// Key of AFFINITY: a client of a service port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C)]
pub struct AffinityKey {
    /// The service port.
    pub service: ServiceId,
    /// 0: `client` is an address. 1: its first eight bytes are the cookie of a network namespace, and the others
    /// zero; what a socket sends from is not known yet when it connects.
    pub kind: u32,
    /// The client.
    pub client: Address,
}

/// Value of AFFINITY.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C)]
pub struct Affinity {
    /// Where it was sent.
    pub backend: BackendId,
    /// When it last opened a connection, in seconds since the machine started.
    pub seconds: u32,
}
