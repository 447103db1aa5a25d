//! Where a client wants to go.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

/// Transport protocols that services have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Tcp => lb_abi::TCP,
            Self::Udp => lb_abi::UDP,
            Self::Sctp => lb_abi::SCTP,
        }
    }

    /// From the IP protocol number; `None`: no service has it.
    pub(crate) const fn from_number(number: u8) -> Option<Self> {
        match number {
            lb_abi::TCP => Some(Self::Tcp),
            lb_abi::UDP => Some(Self::Udp),
            lb_abi::SCTP => Some(Self::Sctp),
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

/// Address families, for which implementations have maps of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    pub(crate) const fn of(address: IpAddr) -> Self {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Destination {
    /// The protocol.
    pub protocol: Protocol,
    /// The address.
    pub address: IpAddr,
    /// The port, in host order.
    pub port: u16,
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = SocketAddr::new(self.address, self.port);
        write!(f, "{} {socket}", self.protocol)
    }
}
