//! Transport addresses: what frontends and backends have in common.

use std::{fmt, net::IpAddr};

use lb_abi::{FrontendKey, Port, SCTP, TCP, UDP, backend_flags};

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

    /// From the IP protocol number; `None` for what is not balanced.
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

/// Address families. A frontend is served by backends of its own.
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
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
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

    /// From a key of FRONTENDS; `None` for one that no frontend of ours has.
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

/// Who serves, as a node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backend {
    /// Where it listens.
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

    /// From a value of BACKENDS; `None` for one that no backend of ours has.
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

#[cfg(test)]
mod tests {
    use super::*;

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
