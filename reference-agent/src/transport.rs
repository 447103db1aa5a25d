//! Transport addresses: what frontends and backends have in common.

use std::{fmt, net::IpAddr};

use lb_abi::{Backend, FrontendKey, Port, TCP, UDP};

/// Transport protocols that the datapath balances. SCTP is none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// The IP protocol number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => TCP,
            Self::Udp => UDP,
        }
    }

    /// From the IP protocol number; `None` for what is not balanced.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            TCP => Some(Self::Tcp),
            UDP => Some(Self::Udp),
            _ => None,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
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

    /// As a value of BACKENDS.
    pub fn backend(self) -> Backend {
        Backend {
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

    /// From a value of BACKENDS; `None` for one that no backend of ours has.
    pub fn from_backend(value: Backend) -> Option<Self> {
        let found = Self {
            protocol: Protocol::from_number(value.protocol)?,
            address: value.address.into(),
            port: value.port.get(),
        };
        (found.backend() == value).then_some(found)
    }
}

impl fmt::Display for TransportAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = std::net::SocketAddr::new(self.address, self.port);
        write!(f, "{} {socket}", self.protocol)
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
        assert_eq!(TransportAddress::from_backend(address.backend()), Some(address));
        assert_eq!(address.to_string(), "TCP 10.96.0.1:443");
    }

    #[test]
    fn padding_and_unknown_protocols_are_not_ours() {
        let key = address().frontend_key();
        assert_eq!(
            TransportAddress::from_frontend_key(FrontendKey { pad: 1, ..key }),
            None
        );
        assert_eq!(
            TransportAddress::from_frontend_key(FrontendKey { protocol: 132, ..key }),
            None
        );
    }
}
