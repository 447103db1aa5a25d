//! Addresses and ports, in network order.

use core::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// An address of either family in 16 bytes, network order.
///
/// Held as four words, as the kernel holds `user_ip6`, and not as bytes: these are compared, copied and zeroed a byte
/// at a time in a program, in a call that a verifier without CAP_PERFMON refuses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct Address(pub(crate) [u32; 4]);

impl Address {
    /// `0.0.0.0`: the address of node ports, IPv4.
    pub const UNSPECIFIED_V4: Self = Self::v4([0; 4]);
    /// `::`: the address of node ports, IPv6.
    pub const UNSPECIFIED_V6: Self = Self([0; 4]);
    /// `127.0.0.1`: what stands for all of 127.0.0.0/8 in ADDRESSES.
    pub const LOOPBACK_V4: Self = Self::v4([127, 0, 0, 1]);
    /// `::1`.
    pub const LOOPBACK_V6: Self = Self([0, 0, 0, u32::from_ne_bytes([0, 0, 0, 1])]);

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

    /// From four words as the kernel keeps them, each in network order.
    #[inline(always)]
    pub const fn from_words(words: [u32; 4]) -> Self {
        Self(words)
    }

    /// The four words, each in network order.
    #[inline(always)]
    pub const fn words(self) -> [u32; 4] {
        self.0
    }

    /// Whether it is an IPv4 address.
    #[inline(always)]
    pub const fn is_v4(self) -> bool {
        let [first, second, third, _] = self.0;
        first == 0 && second == 0 && third == u32::from_ne_bytes([0, 0, 0xff, 0xff])
    }

    /// Whether it is in 127.0.0.0/8, or `::1`.
    #[inline(always)]
    pub const fn is_loopback(self) -> bool {
        let [first, second, third, last] = self.0;
        if self.is_v4() {
            let [high, ..] = last.to_ne_bytes();
            high == 127
        } else {
            first == 0 && second == 0 && third == 0 && last == u32::from_ne_bytes([0, 0, 0, 1])
        }
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
