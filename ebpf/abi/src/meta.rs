//! Whose maps these are, and how the node is set up.

use crate::{ABI_VERSION, Address};

/// First bytes of every [`Meta`]: they tell a program of ours from any other, whatever its name.
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
    /// Last of them.
    pub snat_last: u16,
    /// First of the ports among these that the kernel gives to sockets (`net.ipv4.ip_local_port_range`), which are taken only
    /// when none of the others is free.
    pub local_first: u16,
    /// Last of them; less than the first: none.
    pub local_last: u16,
    /// Most rejections (RST, ICMP errors) that a processor sends in a second (RFC 1812, 4.3.2.8; RFC 4443, 2.4 (f)).
    /// 0: no limit.
    pub rejects_per_second: u32,
    /// Zero.
    pub pad: u32,
    /// The ranges that cluster IPs are from, of either family: what no Service has there is rejected. Those that are not used are
    /// [`AddressRange::NONE`].
    pub service_ranges: [AddressRange; SERVICE_RANGES],
}

/// Most ranges of cluster IPs.
pub const SERVICE_RANGES: usize = 4;

/// A range of addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C)]
pub struct AddressRange {
    /// Its first address.
    pub address: Address,
    /// Ones where all addresses of it are as the first.
    pub mask: Address,
}

impl AddressRange {
    /// Without addresses: all zero, as a CONFIG that was never written.
    pub const NONE: Self = Self {
        address: Address::UNSPECIFIED_V6,
        mask: Address::UNSPECIFIED_V6,
    };

    /// A range; `length` in bits of the address as it is written (0 to 32, or 1 to 128).
    #[must_use]
    pub const fn new(address: Address, length: u8) -> Self {
        let length = if address.is_v4() {
            96 + length as u32
        } else {
            length as u32
        };
        let mask = if length == 0 {
            0
        } else {
            u128::MAX << (128 - length)
        };
        let mask = Address::v6(mask.to_be_bytes());
        let ([a, b, c, d], [e, f, g, h]) = (address.words(), mask.words());
        Self {
            address: Address::from_words([a & e, b & f, c & g, d & h]),
            mask,
        }
    }

    /// Whether an address is in it.
    #[inline(always)]
    pub const fn contains(&self, address: Address) -> bool {
        let ([a, b, c, d], [e, f, g, h]) = (address.words(), self.mask.words());
        let [first, second, third, fourth] = self.address.words();
        e != 0 && a & e == first && b & f == second && c & g == third && d & h == fourth
    }
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
        local_first: 1,
        local_last: 0,
        rejects_per_second: 0,
        pad: 0,
        service_ranges: [AddressRange::NONE; SERVICE_RANGES],
    };
}
