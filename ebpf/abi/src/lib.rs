//! Keys and values of the eBPF maps: what the programs and the agent agree on.
//!
//! ```text
//! agent ─▶ ADDRESSES, FRONTENDS, SERVICES, SLOTS, BACKENDS, SOURCES, KEPT, CONFIG, META ─▶ programs
//!
//! destination ─▶ ADDRESSES ─▶ FRONTENDS ─▶ SERVICES[id] ─▶ SLOTS[id, generation, index] ─▶ BACKENDS[id]
//!                (hash)       (hash)       (array)         (hash)                          (hash)
//! sockets   socket cookie, frontend ─▶ CHOSEN ─▶ the backend that the socket's datagrams go to
//!           socket cookie, reply's source ─▶ SOCKET_REVNAT ─▶ the frontend that the client asked for
//!           socket cookie ─▶ SOCKET_BACKEND ─▶ the newest of its backends
//! packets   tuple ─▶ CONNTRACK ─▶ what the tuple becomes, and how far the connection has got
//!
//! programs ─▶ COUNTERS, SERVICE_TRAFFIC, BACKEND_TRAFFIC ─▶ agent
//! ```
//!
//! All maps in one table: `ebpf/DATAPATH.md`.
//!
//! | module | holds |
//! |---|---|
//! | `address` | [`Address`], [`Port`] |
//! | `service` | FRONTENDS, ADDRESSES, SERVICES, SLOTS, BACKENDS, SOURCES, KEPT: written by the agent |
//! | `flow` | CONNTRACK, FRAGMENTS, HELD, AFFINITY: written by the programs |
//! | `socket` | CHOSEN, SOCKET_REVNAT, SOCKET_BACKEND: written by the programs |
//! | `former` | names of maps in earlier versions |
//! | `counter` | COUNTERS, SERVICE_TRAFFIC, BACKEND_TRAFFIC |
//! | `meta` | META, CONFIG |
//!
//! **Byte order.** Addresses and ports are network order, always, and only their constructors convert;
//! ids, generations, counts and flags are native. **Families.** One set of maps: an IPv4 address is
//! its IPv4-mapped IPv6 form (RFC 4291, 2.5.5.2). **Padding** is explicit and zero: a map key with a
//! hole in it is a key that is never found.
//!
//! Identity is a number. No key here holds a name.
#![no_std]

mod address;
mod counter;
mod flow;
mod former;
mod meta;
mod service;
mod socket;

pub use self::{
    address::{Address, Port},
    counter::{COUNTERS, Counter, Traffic},
    flow::{
        Affinity, AffinityKey, Flow, FragmentKey, HELD_BYTES, Held, HeldKey, Ports, Tuple, flow_flags, seen,
    },
    former::FORMER_NAMES,
    meta::{AddressRange, Config, MAGIC, Meta, SERVICE_RANGES},
    service::{
        Backend, BackendId, Frontend, FrontendKey, Service, ServiceId, SlotKey, SourceKey, address_flags,
        backend_flags, frontend_flags,
    },
    socket::{Chosen, ChosenKey, SocketRevnat, SocketRevnatKey},
};

/// Changes with every change of layout or meaning below; stored in [`Meta`], which is pinned, so that a
/// restarted agent adopts only maps that it can read.
pub const ABI_VERSION: u32 = 3;

/// Most entries of each map. The limits are part of the ABI: a map of another size is not adopted. CONNTRACK, CHOSEN, SOCKET_REVNAT
/// and SOCKET_BACKEND are sized by the loader, from the machine's memory, between a least and a most size.
pub mod capacity {
    /// Frontends: one for each address, port and protocol.
    pub const FRONTENDS: u32 = 65_536;
    /// Addresses of frontends, and of the node.
    pub const ADDRESSES: u32 = 65_536;
    /// Service ports; [`ServiceId`](super::ServiceId)s are below this.
    pub const SERVICES: u32 = 65_536;
    /// Slots: one for each backend of each service port, twice while generations are switched; for a service port
    /// with session affinity twice that; with Maglev as many as its table has.
    pub const SLOTS: u32 = 262_144;
    /// Distinct backends; [`BackendId`](super::BackendId)s are below this.
    pub const BACKENDS: u32 = 65_536;
    /// Ranges of client addresses, those of the cluster's included.
    pub const SOURCES: u32 = 65_536;
    /// Service ports whose last good backends the agent's own sockets go on using.
    pub const KEPT: u32 = 64;
    /// Least entries of CHOSEN (an unconnected socket and one frontend), SOCKET_REVNAT (a socket and one backend) and SOCKET_BACKEND (a
    /// socket), each; least recently used ones are forgotten first.
    pub const SOCKETS_LEAST: u32 = 65_536;
    /// Most entries of CHOSEN, SOCKET_REVNAT and SOCKET_BACKEND, each: one for each connection that CONNTRACK has room for; 1.3 GiB together.
    pub const SOCKETS_MOST: u32 = CONNTRACK_MOST / 2;
    /// Clients with session affinity, each with one service port; least recently used ones are forgotten first.
    pub const AFFINITY: u32 = 65_536;
    /// Fragmented datagrams of which the first fragment has passed, and others may come; of 30 s (RFC 791, 3.2: 15 s).
    pub const FRAGMENTS: u32 = 8_192;
    /// Fragments that came before the first of their datagram, and wait for it: 2 MiB.
    pub const HELD: u32 = 1_024;
    /// Least entries of CONNTRACK: two for each connection.
    pub const CONNTRACK_LEAST: u32 = 16_384;
    /// Most entries of CONNTRACK; 1.4 GiB.
    pub const CONNTRACK_MOST: u32 = 8_388_608;
}

/// IPPROTO_ICMP.
pub const ICMP: u8 = 1;
/// IPPROTO_TCP.
pub const TCP: u8 = 6;
/// IPPROTO_UDP.
pub const UDP: u8 = 17;
/// IPPROTO_ICMPV6.
pub const ICMPV6: u8 = 58;
/// IPPROTO_SCTP.
pub const SCTP: u8 = 132;

#[cfg(test)]
mod tests;
