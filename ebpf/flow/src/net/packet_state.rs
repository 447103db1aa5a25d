//! What has been read and decided of a packet.

use lb_abi::{Address, BackendId, Flow, FragmentKey, HeldKey, Port, ServiceId, Tuple};

use crate::net::{
    answer_rate::Limit,
    conntrack::shows,
    reject::ANSWER_WORDS,
    source_ports::{SourcePort, Trial},
};

/// A packet from what was read to what it becomes.
///
/// In a map, an element for each processor: it is larger than a program's stack. All zero at first, and afterwards what
/// the packet before has left: each field is written before it is read, by what its documentation names.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PacketState {
    /// As it came; written when a packet is read.
    pub headers: Headers,
    /// The flags of the destination's address; written at inbound hooks, of what goes on after [`decide`](crate::net::decide).
    pub(crate) destination_flags: u32,
    /// What an ICMP error quotes; written where the outcome is [`Related`](crate::net::Outcome::Related).
    pub quoted: Headers,
    /// What the tuple becomes; written where the packet is translated. Of an ICMP error: the addresses.
    pub to: Tuple,
    /// What the quoted tuple becomes; written where the outcome is [`Related`](crate::net::Outcome::Related).
    pub quoted_to: Tuple,
    /// Where it goes then; written where the packet is translated.
    pub delivery: Delivery,
    /// Of the flow; written where the outcome is not [`Related`](crate::net::Outcome::Related), but translated.
    pub service: ServiceId,
    /// Of the flow, likewise.
    pub backend: BackendId,
    /// [`Old`]: what section 4 has found, for section 5; written by `established`.
    pub(crate) old: Old,
    /// Key of the reply's entry of the flow that is replaced.
    pub(crate) old_reply_key: Tuple,
    /// Key of the forward entry of the packet's flow.
    pub(crate) forward_key: Tuple,
    /// Key of the reply's entry of the packet's flow.
    pub(crate) reply_key: Tuple,
    /// Key of the entry of the flow that an ICMP error is about.
    pub(crate) related_key: Tuple,
    /// The entry that is being written.
    pub(crate) flow: Flow,
    /// Which source port the backend is to see; written by `new_flow`.
    pub(crate) source_port: SourcePort,
    /// The search for a port.
    pub(crate) trial: Trial,
    /// Of a fragment that is held, or of those that are released: written by `fragments`.
    pub held: HeldKey,
    /// What the packet is answered with, from the IP header on; written by `reject::compose`. It is followed by the MTU
    /// of the route, for an answer that carries it.
    pub answer: [u32; ANSWER_WORDS],
    /// The route's MTU; written where the outcome is [`TooBig`](crate::net::Outcome::TooBig).
    pub mtu: u32,
    /// Answers sent; kept from packet to packet.
    pub limit: Limit,
}

/// Where a translated packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Delivery {
    /// On to the stack, or out of the device.
    PassedOn,
    /// To its destination, by a route that is looked up here.
    Routed,
    /// Into this node's stack, by the loopback device: its destination is the node's own.
    Inward,
}

/// Whether the tuple had an entry in CONNTRACK that does not count any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Old {
    /// None.
    None,
    /// One, which is replaced; the key of its reply's entry is [`PacketState::old_reply_key`].
    Replaced,
}

/// Where the parts of a packet are, and what they hold. Offsets are from the link-layer header on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Headers {
    /// Addresses, ports (0 of what has none) and protocol.
    pub tuple: Tuple,
    /// The IP header's first twelve bytes, without the addresses.
    pub fixed: [u32; 3],
    /// Where the IP header begins.
    pub l3: u32,
    /// Where the headers of IP end, and that of its protocol begins.
    pub l4: u32,
    /// Where the IP packet ends.
    pub end: u32,
    /// Identification of the datagram, of a fragment.
    pub fragment_id: [u8; 4],
    /// Whether it is IPv4.
    pub v4: bool,
    /// Whether it is a fragment.
    pub fragment: Fragment,
    /// What it carries.
    pub transport: Transport,
    /// TCP flags, or what means the same; of ICMP, the type.
    pub signals: u8,
    /// Whether it is UDP without a checksum.
    pub unsummed: bool,
    /// Zero.
    pub pad: [u8; 3],
}

/// Which part of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Fragment {
    /// All of it.
    Whole,
    /// The first fragment.
    First,
    /// Another fragment.
    Later,
}

/// What a packet carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Transport {
    /// Something with ports.
    Ports,
    /// The family's ICMP.
    Icmp,
    /// Something else.
    Other,
}

impl Headers {
    /// Time to live, or hop limit.
    #[inline(always)]
    pub const fn hop_limit(&self) -> u8 {
        let [_, second, third] = self.fixed;
        if self.v4 {
            let [ttl, ..] = third.to_ne_bytes();
            ttl
        } else {
            let [.., hop_limit] = second.to_ne_bytes();
            hop_limit
        }
    }

    /// The IPv4 header's checksum.
    #[inline(always)]
    pub const fn header_checksum(&self) -> [u8; 2] {
        let [.., third] = self.fixed;
        let [_, _, high, low] = third.to_ne_bytes();
        [high, low]
    }

    /// Whether routers must not cut the packet.
    #[inline(always)]
    pub const fn dont_fragment(&self) -> bool {
        let [_, second, _] = self.fixed;
        let [_, _, flags, _] = second.to_ne_bytes();
        !self.v4 || flags & 0x40 != 0
    }

    /// What the packet adds to [`Flow::seen`]; of fragments other than the first, nothing.
    #[inline(always)]
    pub const fn shows(&self, reply: bool) -> u32 {
        if matches!(self.fragment, Fragment::Later) {
            0
        } else {
            shows(self.tuple.protocol, self.signals, reply)
        }
    }

    /// Bytes from the IP header on.
    #[inline(always)]
    pub const fn bytes(&self) -> u32 {
        self.end.wrapping_sub(self.l3)
    }

    /// Where the checksum of TCP and UDP is.
    #[inline(always)]
    pub const fn checksum(&self) -> u32 {
        self.l4 + if self.tuple.protocol == lb_abi::TCP { 16 } else { 6 }
    }
}

const NO_TUPLE: Tuple = Tuple {
    source: Address::UNSPECIFIED_V6,
    destination: Address::UNSPECIFIED_V6,
    source_port: Port([0; 2]),
    destination_port: Port([0; 2]),
    protocol: 0,
    pad: [0; 3],
};

impl PacketState {
    /// All zero.
    pub const NEW: Self = {
        let headers = Headers {
            tuple: NO_TUPLE,
            fixed: [0; 3],
            l3: 0,
            l4: 0,
            end: 0,
            fragment_id: [0; 4],
            v4: false,
            fragment: Fragment::Whole,
            transport: Transport::Ports,
            signals: 0,
            unsummed: false,
            pad: [0; 3],
        };
        Self {
            headers,
            destination_flags: 0,
            quoted: headers,
            to: NO_TUPLE,
            quoted_to: NO_TUPLE,
            delivery: Delivery::PassedOn,
            service: 0,
            backend: 0,
            old: Old::None,
            old_reply_key: NO_TUPLE,
            forward_key: NO_TUPLE,
            reply_key: NO_TUPLE,
            related_key: NO_TUPLE,
            flow: Flow {
                to: NO_TUPLE,
                seen: 0,
                last_seen: 0,
                service: 0,
                backend: 0,
                flags: 0,
                pad: 0,
                claim: 0,
            },
            source_port: SourcePort::Kept,
            trial: Trial::NONE,
            held: HeldKey {
                datagram: FragmentKey {
                    source: Address::UNSPECIFIED_V6,
                    destination: Address::UNSPECIFIED_V6,
                    id: [0; 4],
                    protocol: 0,
                    pad: [0; 3],
                },
                number: 0,
            },
            answer: [0; ANSWER_WORDS],
            mtu: 0,
            limit: Limit::NEW,
        }
    };
}
