//! Transport addresses of frontends and backends, and ranges of addresses.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use lb_abi::{Address, FrontendKey, Port, SCTP, TCP, UDP, backend_flags};

/// Transport protocols that the datapath balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// The IP protocol number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => TCP,
            Self::Udp => UDP,
            Self::Sctp => SCTP,
        }
    }

    /// From the IP protocol number; `None` for one that is not balanced.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            TCP => Some(Self::Tcp),
            UDP => Some(Self::Udp),
            SCTP => Some(Self::Sctp),
            _ => None,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        })
    }
}

/// Address families. A frontend is served by backends of its own family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Of an address.
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The address that stands for all loopback addresses in ADDRESSES.
    pub const fn loopback(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Self::V6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
        }
    }

    /// The address of node ports.
    pub const fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Self::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// Whether a frontend or a backend can have an address: it is not unspecified, loopback, multicast, broadcast or
/// IPv4-mapped (which would be another one in the maps).
pub fn is_usable(address: IpAddr) -> bool {
    let special = address.is_unspecified() || address.is_loopback() || address.is_multicast();
    !special
        && match address {
            IpAddr::V4(v4) => !v4.is_broadcast(),
            IpAddr::V6(v6) => v6.to_ipv4_mapped().is_none(),
        }
}

/// An address, a port and a protocol. Displays as `TCP 10.96.0.1:443`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransportAddress {
    /// The protocol.
    pub protocol: Protocol,
    /// The address.
    pub address: IpAddr,
    /// The port, in host order.
    pub port: u16,
}

impl TransportAddress {
    /// As a key of FRONTENDS.
    pub fn frontend_key(self) -> FrontendKey {
        FrontendKey {
            address: self.address.into(),
            port: Port::new(self.port),
            protocol: self.protocol.number(),
            pad: 0,
        }
    }

    /// From a key of FRONTENDS; `None` for one that the agent does not write.
    pub fn from_frontend_key(key: FrontendKey) -> Option<Self> {
        let found = Self {
            protocol: Protocol::from_number(key.protocol)?,
            address: key.address.into(),
            port: key.port.get(),
        };
        (found.frontend_key() == key).then_some(found)
    }
}

impl fmt::Display for TransportAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = std::net::SocketAddr::new(self.address, self.port);
        write!(f, "{} {socket}", self.protocol)
    }
}

/// The key of the node port that may serve a client of this destination.
pub(crate) fn node_port(asked: FrontendKey) -> FrontendKey {
    FrontendKey {
        address: match asked.address.is_v4() {
            true => Address::UNSPECIFIED_V4,
            false => Address::UNSPECIFIED_V6,
        },
        ..asked
    }
}

/// A backend, from the perspective of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backend {
    /// Its address.
    pub address: TransportAddress,
    /// Whether it runs on this node.
    pub local: bool,
}

impl Backend {
    /// As a value of BACKENDS.
    pub fn value(self) -> lb_abi::Backend {
        let TransportAddress {
            protocol,
            address,
            port,
        } = self.address;
        lb_abi::Backend {
            address: address.into(),
            port: Port::new(port),
            protocol: protocol.number(),
            flags: if self.local { backend_flags::LOCAL } else { 0 },
        }
    }

    /// From a value of BACKENDS; `None` for one that the agent does not write.
    pub fn from_value(value: lb_abi::Backend) -> Option<Self> {
        let found = Self {
            address: TransportAddress {
                protocol: Protocol::from_number(value.protocol)?,
                address: value.address.into(),
                port: value.port.get(),
            },
            local: value.flags & backend_flags::LOCAL != 0,
        };
        (found.value() == value).then_some(found)
    }
}

/// A range of addresses (CIDR). Displays as `192.0.2.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    address: IpAddr,
    length: u8,
}

impl Range {
    /// All addresses whose first `length` bits are those of `address`; `None`: the family has fewer bits.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(v4) => {
                let host = u32::MAX.checked_shr(length.into()).unwrap_or(0);
                (length <= 32).then(|| IpAddr::from(Ipv4Addr::from_bits(v4.to_bits() & !host)))
            }
            IpAddr::V6(v6) => {
                let host = u128::MAX.checked_shr(length.into()).unwrap_or(0);
                (length <= 128).then(|| IpAddr::from(Ipv6Addr::from_bits(v6.to_bits() & !host)))
            }
        };
        address.map(|address| Self { address, length })
    }

    /// One address.
    pub const fn of(address: IpAddr) -> Self {
        let length = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        Self { address, length }
    }

    /// Its first address.
    pub const fn address(self) -> IpAddr {
        self.address
    }

    /// How many bits all its addresses have in common.
    pub const fn length(self) -> u8 {
        self.length
    }

    /// The family of its addresses.
    pub const fn family(self) -> Family {
        Family::of(self.address)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_a_range_that_do_not_count_are_cleared() {
        let range = |text: &str, length| Range::new(text.parse().expect("an address"), length);
        let shown = |text: &str, length| range(text, length).map(|range| range.to_string());
        assert_eq!(shown("192.0.2.255", 24).as_deref(), Some("192.0.2.0/24"));
        assert_eq!(shown("192.0.2.255", 32).as_deref(), Some("192.0.2.255/32"));
        assert_eq!(shown("192.0.2.255", 0).as_deref(), Some("0.0.0.0/0"));
        assert_eq!(shown("192.0.2.255", 33), None);
        assert_eq!(
            shown("2001:db8::ffff", 127).as_deref(),
            Some("2001:db8::fffe/127")
        );
        assert_eq!(shown("2001:db8::1", 128).as_deref(), Some("2001:db8::1/128"));
        assert_eq!(shown("2001:db8::1", 0).as_deref(), Some("::/0"));
        assert_eq!(shown("2001:db8::1", 129), None);
        assert_eq!(range("192.0.2.1", 24), range("192.0.2.2", 24));
        for (text, length) in [("192.0.2.1", 32), ("2001:db8::1", 128)] {
            let address = text.parse().expect("an address");
            assert_eq!(Some(Range::of(address)), range(text, length));
        }
    }

    fn address() -> TransportAddress {
        TransportAddress {
            protocol: Protocol::Tcp,
            address: IpAddr::from([10, 96, 0, 1]),
            port: 443,
        }
    }

    #[test]
    fn keys_and_values_lead_back_to_the_address() {
        let address = address();
        assert_eq!(
            TransportAddress::from_frontend_key(address.frontend_key()),
            Some(address)
        );
        for local in [false, true] {
            let backend = Backend { address, local };
            assert_eq!(Backend::from_value(backend.value()), Some(backend));
        }
        assert_eq!(address.to_string(), "TCP 10.96.0.1:443");
    }

    #[test]
    fn padding_unknown_flags_and_unknown_protocols_are_not_ours() {
        let key = address().frontend_key();
        assert_eq!(
            TransportAddress::from_frontend_key(FrontendKey { pad: 1, ..key }),
            None
        );
        assert_eq!(
            TransportAddress::from_frontend_key(FrontendKey { protocol: 1, ..key }),
            None
        );
        let backend = Backend {
            address: address(),
            local: true,
        };
        let flags = backend_flags::ALL + 1;
        assert_eq!(
            Backend::from_value(lb_abi::Backend {
                flags,
                ..backend.value()
            }),
            None
        );
    }
}
