//! What the agent writes: from an address that a client asks for to the backends behind it.

use crate::{Address, Port};

/// Number of a *service port*: one port of one Service, with one set of backends. A Service with a traffic policy
/// `Local` has two for a port: one with all backends, one with those of this node. Handed out by the agent; 0 is
/// never handed out.
pub type ServiceId = u32;

/// Number of a backend: one address, port and protocol. Handed out by the agent, below
/// [`capacity::BACKENDS`](crate::capacity::BACKENDS); 0 is never handed out.
pub type BackendId = u32;

/// Key of FRONTENDS: the destination that a client asks for.
///
/// A node port has the unspecified address (`0.0.0.0` or `::`, by family): it answers at each address that ADDRESSES
/// has as [`address_flags::NODE`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C)]
pub struct FrontendKey {
    /// ClusterIP, external IP, load balancer IP …
    pub address: Address,
    /// Its port.
    pub port: Port,
    /// [`TCP`](crate::TCP), [`UDP`](crate::UDP) or [`SCTP`](crate::SCTP).
    pub protocol: u8,
    /// Zero.
    pub pad: u8,
}

/// Value of FRONTENDS.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(C)]
pub struct Frontend {
    /// Index into SERVICES for clients on this node: sockets, and packets of its pods and its own. 0: there is no
    /// such frontend for them.
    pub internal: ServiceId,
    /// Index into SERVICES for packets that come from outside. 0: there is no such frontend for them.
    pub external: ServiceId,
    /// [`frontend_flags`].
    pub flags: u32,
    /// Session affinity by client address: for how long after its last new connection a client is sent to the same
    /// backend, in seconds. 0: no affinity.
    pub affinity_seconds: u32,
}

/// Flags of a [`Frontend`].
pub mod frontend_flags {
    /// Slots are chosen by a hash of the connection, not at random: its table is a Maglev one, so that every node
    /// chooses the same backend, and keeps to it when others come and go.
    pub const MAGLEV: u32 = 1;
    /// Only clients that SOURCES has are served (`loadBalancerSourceRanges`).
    pub const SOURCE_RANGES: u32 = 1 << 1;
    /// Packets from outside are dropped, not rejected, when there is no backend: `externalTrafficPolicy: Local` on a
    /// node without one, whose clients shall try again elsewhere.
    pub const SILENT: u32 = 1 << 2;
    /// A node port whose number is the target port's, too: a pod with the node's network may be bound to it.
    pub const TARGET_PORT: u32 = 1 << 3;
    /// All of them.
    pub const ALL: u32 = MAGLEV | SOURCE_RANGES | SILENT | TARGET_PORT;
}

/// Flags that are the value of ADDRESSES, whose key is an [`Address`].
pub mod address_flags {
    /// An address of services alone (ClusterIP): what is no frontend there is rejected, and is never routed on.
    pub const VIP: u32 = 1;
    /// An address of load balancers. A machine may have it too, such as a proxy, whose packets are a client's like any others.
    /// Packets for a port that is no frontend there are left alone if they come from the node or its pods, and rejected if they
    /// come from outside: the node would otherwise route them out again.
    pub const LOAD_BALANCER: u32 = 1 << 1;
    /// An address of this node at which node ports answer, and which packets to remote backends are sent from.
    /// `127.0.0.1` stands for all of 127.0.0.0/8: with it and `::1` node ports answer at loopback, to sockets of the
    /// node's own network namespace.
    pub const NODE: u32 = 1 << 2;
    /// All of them.
    pub const ALL: u32 = VIP | LOAD_BALANCER | NODE;
}

/// Value of SERVICES, an array: eight bytes, so that one store switches every frontend of a service port from
/// one generation of slots to the next. All zero: no such service port.
///
/// The array is mapped into the agent's memory (BPF_F_MMAPABLE), because `bpf_map_update_elem` copies array
/// values with memcpy, which does not promise to store eight bytes at once. KEPT has the same value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(C, align(8))]
pub struct Service {
    /// Which slots are current; never 0 for a service port that exists.
    pub generation: u32,
    /// How many. 0: connections are refused.
    pub slots: u32,
}

impl Service {
    /// As the one word that is loaded and stored: both fields of one write, never one of each.
    #[inline(always)]
    pub const fn to_word(self) -> u64 {
        let [a, b, c, d] = self.generation.to_ne_bytes();
        let [e, f, g, h] = self.slots.to_ne_bytes();
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    }

    /// From the word that was loaded.
    #[inline(always)]
    pub const fn from_word(word: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
        Self {
            generation: u32::from_ne_bytes([a, b, c, d]),
            slots: u32::from_ne_bytes([e, f, g, h]),
        }
    }
}

/// Key of SLOTS.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C)]
pub struct SlotKey {
    /// Whose slot.
    pub service: ServiceId,
    /// Of which generation.
    pub generation: u32,
    /// From 0 to one below [`Service::slots`]; or, with the highest bit set, see [`SlotKey::member`].
    pub index: u32,
}

impl SlotKey {
    /// The key by which a backend is a member of a generation; its value is the backend's id again. Written beside
    /// the slots of a service port with session affinity: a client is sent to the backend that it had only while
    /// that is one of the generation that is current.
    #[inline(always)]
    pub const fn member(service: ServiceId, generation: u32, backend: BackendId) -> Self {
        Self {
            service,
            generation,
            index: backend | Self::MEMBER,
        }
    }

    /// The highest bit of `index`.
    pub const MEMBER: u32 = 1 << 31;
}

/// Value of BACKENDS, whose key is a [`BackendId`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C)]
pub struct Backend {
    /// Where it listens.
    pub address: Address,
    /// Its port.
    pub port: Port,
    /// [`TCP`](crate::TCP), [`UDP`](crate::UDP) or [`SCTP`](crate::SCTP).
    pub protocol: u8,
    /// [`backend_flags`].
    pub flags: u8,
}

/// Flags of a [`Backend`].
pub mod backend_flags {
    /// On this node: packets from outside keep their source address, because the answer passes here anyway; but those of
    /// the cluster's clients ([`SourceKey::CLUSTER`](crate::SourceKey::CLUSTER)).
    pub const LOCAL: u8 = 1;
    /// All of them.
    pub const ALL: u8 = LOCAL;
}

/// Key of SOURCES, a longest-prefix-match trie (`BPF_MAP_TYPE_LPM_TRIE`): a range of clients, of a service port or
/// ([`SourceKey::CLUSTER`]) of the cluster. The value is 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C)]
pub struct SourceKey {
    /// Bits of what follows that are compared: 32 for the service, 96 more for an IPv4 range, and the range's own.
    pub prefix_length: u32,
    /// [`Frontend::external`], or [`Frontend::internal`] where that is 0; or [`SourceKey::CLUSTER`]. Most significant
    /// byte first.
    pub service: [u8; 4],
    /// The range's address.
    pub address: Address,
}

impl SourceKey {
    /// In the place of a service port's number, which it never is: the addresses of the cluster, which are all Nodes and their
    /// pods. Their sockets may be connected to a backend itself, past the packet programs of the backend's node.
    pub const CLUSTER: ServiceId = 0;

    /// A range; `length` in bits of the address as it is written (0 to 32, or 0 to 128).
    pub const fn range(service: ServiceId, address: Address, length: u8) -> Self {
        let mapped = if address.is_v4() { 96 } else { 0 };
        Self {
            prefix_length: 32 + mapped + length as u32,
            service: service.to_be_bytes(),
            address,
        }
    }

    /// What a client is looked up by.
    #[inline(always)]
    pub const fn client(service: ServiceId, address: Address) -> Self {
        Self {
            prefix_length: 160,
            service: service.to_be_bytes(),
            address,
        }
    }
}
