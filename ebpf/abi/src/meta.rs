//! Whose maps these are, and how the node is set up.

use crate::{ABI_VERSION, Address};

/// First bytes of every [`Meta`]: how a program of ours is told from anybody else's, whatever its name.
pub const MAGIC: [u8; 8] = *b"plumbln\0";

/// Value of the only entry of META, which every program reads: one whose META is not of its own version leaves
/// everything alone. Written last, when the other maps are there.
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

/// Value of the only entry of CONFIG.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Config {
    /// Id of the agent's own cgroup, whose sockets see services as KEPT has them. 0: none.
    pub own_cgroup: u64,
    /// Cookie of the node's own network namespace (`SO_NETNS_COOKIE`): node ports answer at loopback, and are kept
    /// from being bound, only there. 0: nowhere.
    pub node_netns: u64,
    /// What packets to remote backends are sent from, IPv4; also the source of ICMP errors that are the node's own.
    /// Unspecified: IPv4 packets are not sent to remote backends.
    pub node_v4: Address,
    /// The same, IPv6.
    pub node_v6: Address,
    /// First of the ports that packets to remote backends are sent from.
    pub snat_first: u16,
    /// Last of them. Outside `net.ipv4.ip_local_port_range` and the node ports, or those of local sockets could be
    /// taken.
    pub snat_last: u16,
    /// Most rejections (RST, ICMP errors) that a processor sends in a second (RFC 1812, 4.3.2.8; RFC 4443, 2.4 (f)).
    /// 0: no limit.
    pub rejects_per_second: u32,
}

impl Config {
    /// A node without addresses and limits.
    pub const NONE: Self = Self {
        own_cgroup: 0,
        node_netns: 0,
        node_v4: Address::UNSPECIFIED_V4,
        node_v6: Address::UNSPECIFIED_V6,
        snat_first: 0,
        snat_last: 0,
        rejects_per_second: 0,
    };
}
