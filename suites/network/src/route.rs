//! Routes of the main table.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use rtnetlink::{
    RouteMessageBuilder,
    packet_route::route::{RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType},
};

/// RTAX_MTU as a bit of `RTAX_LOCK`: the route's MTU is a limit for forwarded packets, too.
const MTU_LOCKED: u32 = 1 << 2;

/// Where packets to a destination go.
#[derive(Clone, Copy, Debug)]
pub enum Via<'a> {
    /// To this device: destinations are its neighbours.
    Device(&'a str),
    /// To this next hop.
    Gateway(IpAddr),
    /// Nowhere: senders get an ICMP error.
    Unreachable,
}

/// A route of the main table.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    destination: IpNet,
    via: Via<'a>,
    locked_mtu: Option<u32>,
    protocol: Option<u8>,
}

impl<'a> Route<'a> {
    /// To a network; for the route to one address: `address.into()`.
    #[must_use]
    pub const fn to(destination: IpNet, via: Via<'a>) -> Self {
        Self {
            destination,
            via,
            locked_mtu: None,
            protocol: None,
        }
    }

    /// The default route of the gateway's family.
    #[must_use]
    pub fn default_via(gateway: IpAddr) -> Self {
        let any: IpAddr = match gateway {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        Self::to(IpNet::new_assert(any, 0), Via::Gateway(gateway))
    }

    /// With an MTU below the device's, in bytes, that forwarded packets keep to as well.
    #[must_use]
    pub const fn locked_mtu(self, mtu: u32) -> Self {
        Self {
            locked_mtu: Some(mtu),
            ..self
        }
    }

    /// Of the owner with this protocol number (`rtm_protocol`), which otherwise is RTPROT_STATIC.
    #[must_use]
    pub const fn protocol(self, number: u8) -> Self {
        Self {
            protocol: Some(number),
            ..self
        }
    }

    pub(crate) const fn destination(&self) -> IpNet {
        self.destination
    }

    /// The device's name, if the route is by one.
    pub(crate) const fn device(&self) -> Option<&'a str> {
        match self.via {
            Via::Device(name) => Some(name),
            Via::Gateway(_) | Via::Unreachable => None,
        }
    }

    /// `device`: index of [`Route::device`].
    pub(crate) fn message(&self, device: Option<u32>) -> RouteMessage {
        let length = self.destination.prefix_len();
        let mut message = match self.destination.network() {
            IpAddr::V4(network) => RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(network, length)
                .build(),
            IpAddr::V6(network) => RouteMessageBuilder::<Ipv6Addr>::new()
                .destination_prefix(network, length)
                .build(),
        };
        match self.via {
            Via::Device(_) => message.header.scope = RouteScope::Link,
            Via::Gateway(gateway) => {
                let gateway = RouteAttribute::Gateway(gateway.into());
                message.attributes.push(gateway);
            }
            Via::Unreachable => message.header.kind = RouteType::Unreachable,
        }
        message.attributes.extend(device.map(RouteAttribute::Oif));
        if let Some(mtu) = self.locked_mtu {
            let metrics = vec![RouteMetric::Lock(MTU_LOCKED), RouteMetric::Mtu(mtu)];
            message.attributes.push(RouteAttribute::Metrics(metrics));
        }
        if let Some(number) = self.protocol {
            message.header.protocol = RouteProtocol::from(number);
        }
        message
    }
}
