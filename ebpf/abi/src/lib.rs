//! Keys and values of the eBPF maps: what the programs and the agent agree on.
//!
//! ```text
//! destination ─▶ FRONTENDS ─▶ SERVICES[id] ─▶ SLOTS[id, generation, index] ─▶ BACKENDS[id] ─▶ address, port
//!                (hash)       (array)         (hash)                          (hash)
//! reply's source, socket cookie ─▶ REVERSE ─▶ the frontend that the client asked for
//! ```
//!
//! **Byte order.** Addresses and ports are network order, always, and only their constructors convert;
//! ids, generations, counts and flags are native. **Families.** One set of maps: an IPv4 address is
//! its IPv4-mapped IPv6 form (RFC 4291, 2.5.5.2). **Padding** is explicit and zero: a map key with a
//! hole in it is a key that is never found.
//!
//! Identity is a number. No key here holds a name.
#![no_std]

use core::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Changes with every change of layout or meaning below; stored in [`Meta`], which is pinned, so that a
/// restarted agent adopts only maps that it can read.
pub const ABI_VERSION: u32 = 1;

/// First bytes of every [`Meta`]: how a program of ours is told from anybody else's, whatever its name.
pub const MAGIC: [u8; 8] = *b"plumbln\0";

/// Most entries of each map. The limits are part of the ABI: a map of another size is not adopted.
pub mod capacity {
    /// Frontends: one for each address, port and protocol.
    pub const FRONTENDS: u32 = 65_536;
    /// Service ports; [`ServiceId`](super::ServiceId)s are below this.
    pub const SERVICES: u32 = 65_536;
    /// Slots: one for each backend of each service port, twice while generations are switched.
    pub const SLOTS: u32 = 262_144;
    /// Distinct backends.
    pub const BACKENDS: u32 = 65_536;
    /// Sockets whose reverse translation is remembered; least recently used ones are forgotten first.
    pub const REVERSE: u32 = 65_536;
}

/// IPPROTO_TCP.
pub const TCP: u8 = 6;
/// IPPROTO_UDP.
pub const UDP: u8 = 17;

/// An address of either family in 16 bytes, network order.
///
/// Held as four words, as the kernel holds `user_ip6`, and not as bytes: these are compared, copied and zeroed a byte
/// at a time in a program, in a call that a verifier without CAP_PERFMON refuses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct Address([u32; 4]);

impl Address {
    /// From an IPv4 address as the kernel keeps it: four bytes in network order.
    #[inline(always)]
    pub const fn v4(octets: [u8; 4]) -> Self {
        Self([
            0,
            0,
            u32::from_ne_bytes([0, 0, 0xff, 0xff]),
            u32::from_ne_bytes(octets),
        ])
    }

    /// From an IPv6 address.
    pub const fn v6(octets: [u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = octets;
        Self([
            u32::from_ne_bytes([a, b, c, d]),
            u32::from_ne_bytes([e, f, g, h]),
            u32::from_ne_bytes([i, j, k, l]),
            u32::from_ne_bytes([m, n, o, p]),
        ])
    }

    /// All 16 bytes.
    pub const fn octets(self) -> [u8; 16] {
        let [first, second, third, fourth] = self.0;
        let [a, b, c, d] = first.to_ne_bytes();
        let [e, f, g, h] = second.to_ne_bytes();
        let [i, j, k, l] = third.to_ne_bytes();
        let [m, n, o, p] = fourth.to_ne_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
    }

    /// The last four bytes: the IPv4 address, if it is one.
    #[inline(always)]
    pub const fn last4(self) -> [u8; 4] {
        let [.., last] = self.0;
        last.to_ne_bytes()
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&IpAddr::from(*self), f)
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => Self::v4(v4.octets()),
            IpAddr::V6(v6) => Self::v6(v6.octets()),
        }
    }
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> Self {
        let v6 = Ipv6Addr::from(address.octets());
        v6.to_ipv4_mapped()
            .map_or(Self::V6(v6), |v4: Ipv4Addr| Self::V4(v4))
    }
}

/// A port in network order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C)]
pub struct Port(pub [u8; 2]);

impl Port {
    /// From a number in host order.
    #[inline(always)]
    pub const fn new(port: u16) -> Self {
        Self(port.to_be_bytes())
    }

    /// The number, in host order.
    #[inline(always)]
    pub const fn get(self) -> u16 {
        u16::from_be_bytes(self.0)
    }
}

/// Number of a *service port*: one port of one Service, with one set of backends that all of its frontends
/// share. Handed out by the agent; 0 is never handed out.
pub type ServiceId = u32;

/// Number of a backend: one address, port and protocol. Handed out by the agent; 0 is never handed out.
pub type BackendId = u32;

/// Key of FRONTENDS: the destination that a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C)]
pub struct FrontendKey {
    /// ClusterIP, external IP, node address …
    pub address: Address,
    /// Its port.
    pub port: Port,
    /// [`TCP`] or [`UDP`].
    pub protocol: u8,
    /// Zero.
    pub pad: u8,
}

/// Value of FRONTENDS.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C)]
pub struct Frontend {
    /// Index into SERVICES.
    pub service: ServiceId,
    /// Zero; kept for scope and policy.
    pub flags: u32,
}

/// Value of SERVICES, an array: eight bytes, so that one store switches every frontend of a service port from
/// one generation of slots to the next. All zero: no such service port.
///
/// The array is mapped into the agent's memory (BPF_F_MMAPABLE), because `bpf_map_update_elem` copies array
/// values with memcpy, which does not promise to store eight bytes at once.
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
    /// From 0 to one below [`Service::slots`].
    pub index: u32,
}

/// Value of BACKENDS, whose key is a [`BackendId`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C)]
pub struct Backend {
    /// Where it listens.
    pub address: Address,
    /// Its port.
    pub port: Port,
    /// [`TCP`] or [`UDP`].
    pub protocol: u8,
    /// Zero.
    pub pad: u8,
}

/// Key of REVERSE, whose value is the [`FrontendKey`] that the client asked for: a socket and the backend it
/// talks to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C)]
pub struct ReverseKey {
    /// `bpf_get_socket_cookie`: unique for as long as the machine runs.
    pub cookie: u64,
    /// The backend.
    pub backend: Backend,
    /// Zero.
    pub pad: u32,
}

/// Value of the only entry of META, which every program reads: one whose META is not of its own version leaves
/// every socket alone. Written last, when the other maps are there.
///
/// Its first 16 bytes keep their place and meaning in all versions: by them an agent recognises programs of
/// any earlier load, whose pins, names and processes may be gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Meta {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`ABI_VERSION`] of the maps that belong to this one.
    pub abi: u32,
    /// Zero.
    pub pad: u32,
}

impl Meta {
    /// What belongs to maps of this version.
    pub const CURRENT: Self = Self {
        magic: MAGIC,
        abi: ABI_VERSION,
        pad: 0,
    };
}

/// What became of a socket operation: index into the per-CPU array COUNTERS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Counter {
    /// connect: the destination is no frontend; left alone.
    ConnectPassed = 0,
    /// connect: sent to a backend.
    ConnectTranslated = 1,
    /// connect: the service has no backend; ECONNREFUSED.
    ConnectRefused = 2,
    /// sendmsg: the destination is no frontend; left alone.
    SendmsgPassed = 3,
    /// sendmsg: sent to a backend.
    SendmsgTranslated = 4,
    /// sendmsg: the service has no backend; ECONNREFUSED.
    SendmsgRefused = 5,
    /// recvmsg: the source was shown as the frontend.
    RecvmsgReversed = 6,
    /// getpeername: the peer was shown as the frontend.
    GetpeernameReversed = 7,
    /// A slot or backend that the service names is not there. Never, by the order of writes: a defect.
    Hole = 8,
    /// The reverse entry could not be stored; the socket sees the backend's address.
    ReverseFull = 9,
}

impl Counter {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; COUNTERS as usize] = [
        Self::ConnectPassed,
        Self::ConnectTranslated,
        Self::ConnectRefused,
        Self::SendmsgPassed,
        Self::SendmsgTranslated,
        Self::SendmsgRefused,
        Self::RecvmsgReversed,
        Self::GetpeernameReversed,
        Self::Hole,
        Self::ReverseFull,
    ];
}

/// Number of [`Counter`]s.
pub const COUNTERS: u32 = 10;

#[cfg(test)]
mod tests;
