//! Links, addresses and default routes of the kernel.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use rtnetlink::packet_route::{
    AddressFamily,
    address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope},
    link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage},
    route::{RouteAttribute, RouteHeader, RouteMessage, RouteType},
};

use crate::endpoint_address::Family;

/// A network namespace at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// By index.
    pub links: BTreeMap<u32, Link>,
    /// In the kernel's order: primary before secondary ones.
    pub addresses: Vec<HostAddress>,
    /// Family and device of each default route of the main table, those of the lowest metric first.
    pub defaults: Vec<(Family, u32)>,
}

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: LinkKind,
    /// Whether its packets begin with an Ethernet header.
    pub ethernet: bool,
    /// Whether it is up.
    pub up: bool,
    /// Whether its peer or lower device is in another network namespace.
    pub elsewhere: bool,
    /// Bytes of its largest packet, without link header.
    pub mtu: Option<u32>,
    /// Index of its controller: the bridge or bond that it is a port of.
    pub controller: Option<u32>,
    /// Index of its lower device, if that is in this network namespace: of a VLAN, macvlan or ipvlan.
    pub lower: Option<u32>,
}

/// Kinds of devices that are treated differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// `lo`.
    Loopback,
    /// One end of a pair: veth, netkit.
    Pair,
    /// A bridge.
    Bridge,
    /// A bond or a team.
    Bond,
    /// A dummy, or an intermediate functional block: packets do not come in.
    Sink,
    /// Anything else: physical, VLAN, macvlan, overlays, virtual routing.
    Other,
}

/// An address of a device at which it can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAddress {
    /// Index of the device.
    pub device: u32,
    /// The address.
    pub address: IpAddr,
    /// Bits of the subnet.
    pub prefix_length: u8,
}

impl Link {
    /// From a netlink message; `None`: without a name.
    pub(super) fn read(message: LinkMessage) -> Option<(u32, Self)> {
        let (mut name, mut info, mut elsewhere, mut mtu, mut controller, mut lower) =
            (None, None, false, None, None, None);
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(found) => name = Some(found),
                LinkAttribute::LinkInfo(found) => info = Some(found),
                LinkAttribute::Mtu(found) => mtu = Some(found),
                LinkAttribute::LinkNetNsId(_) => elsewhere = true,
                LinkAttribute::Link(index) if index != 0 => lower = Some(index),
                LinkAttribute::Controller(index) if index != 0 => controller = Some(index),
                _ => {}
            }
        }
        let header = message.header;
        let kind = if header.flags.contains(LinkFlags::Loopback) {
            LinkKind::Loopback
        } else {
            info.iter()
                .flatten()
                .find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(LinkKind::of(kind)),
                    _ => None,
                })
                .unwrap_or(LinkKind::Other)
        };
        let link = Self {
            name: name?,
            kind,
            ethernet: header.link_layer_type == LinkLayerType::Ether,
            up: header.flags.contains(LinkFlags::Up),
            elsewhere,
            mtu,
            controller,
            // A pair has its peer there.
            lower: lower.filter(|_| kind != LinkKind::Pair && !elsewhere),
        };
        Some((header.index, link))
    }
}

impl LinkKind {
    const fn of(kind: &InfoKind) -> Self {
        match kind {
            InfoKind::Veth | InfoKind::Netkit => Self::Pair,
            InfoKind::Bridge => Self::Bridge,
            InfoKind::Bond => Self::Bond,
            InfoKind::Dummy | InfoKind::Ifb => Self::Sink,
            _ => Self::Other,
        }
    }
}

impl HostAddress {
    /// Whether it has a subnet: a gateway's address at a pod's device has none.
    pub(super) const fn is_of_subnet(&self) -> bool {
        self.prefix_length < if self.address.is_ipv4() { 32 } else { 128 }
    }

    /// From a netlink message; `None`: it can't be used. It is of this machine or of one link only, duplicate, tentative, or
    /// deprecated (RFC 4862, 5.4 and 5.5.4).
    pub(super) fn read(message: &AddressMessage) -> Option<Self> {
        let reachable = matches!(message.header.scope, AddressScope::Universe | AddressScope::Site);
        let (mut local, mut address) = (None, None);
        let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
        for attribute in &message.attributes {
            match attribute {
                // At a point-to-point device ADDRESS is the peer's.
                AddressAttribute::Local(found) => local = Some(*found),
                AddressAttribute::Address(found) => address = Some(*found),
                AddressAttribute::Flags(found) => flags = *found,
                _ => {}
            }
        }
        let tentative = flags.contains(AddressFlags::Tentative) && !flags.contains(AddressFlags::Optimistic);
        let unusable = flags.intersects(AddressFlags::Dadfailed | AddressFlags::Deprecated);
        let address = local.or(address)?;
        (reachable && !tentative && !unusable && !address.is_loopback()).then_some(Self {
            device: message.header.index,
            address,
            prefix_length: message.header.prefix_len,
        })
    }
}

/// Family, metric and devices of a default route; `None`: another route.
pub(super) fn default_route(message: &RouteMessage) -> Option<(Family, u32, BTreeSet<u32>)> {
    let header = &message.header;
    let family = match header.address_family {
        AddressFamily::Inet => Family::V4,
        AddressFamily::Inet6 => Family::V6,
        _ => return None,
    };
    if header.destination_prefix_length != 0
        || header.kind != RouteType::Unicast
        || header.table != RouteHeader::RT_TABLE_MAIN
    {
        return None;
    }
    let (mut metric, mut devices) = (0, BTreeSet::new());
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => {
                devices.insert(*index);
            }
            RouteAttribute::MultiPath(hops) => devices.extend(hops.iter().map(|hop| hop.interface_index)),
            RouteAttribute::Priority(found) => metric = *found,
            _ => {}
        }
    }
    Some((family, metric, devices))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(kind: InfoKind, attributes: Vec<LinkAttribute>) -> Link {
        let mut message = LinkMessage::default();
        message.header.index = 7;
        message.attributes = attributes;
        message.attributes.extend([
            LinkAttribute::IfName("eth1".to_owned()),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]),
        ]);
        Link::read(message).expect("it has a name").1
    }

    #[test]
    fn a_lower_device_is_known_within_its_network_namespace() {
        let on = LinkAttribute::Link(3);
        let elsewhere = LinkAttribute::LinkNetNsId(1);
        assert_eq!(link(InfoKind::MacVlan, vec![on.clone()]).lower, Some(3));
        assert_eq!(
            link(InfoKind::MacVlan, vec![on.clone(), elsewhere.clone()]).lower,
            None
        );
        let pair = link(InfoKind::Veth, vec![on.clone(), elsewhere]);
        assert_eq!((pair.lower, pair.elsewhere), (None, true));
        assert_eq!(link(InfoKind::Veth, vec![on]).lower, None, "the other end");
    }

    #[test]
    fn an_address_alone_has_no_subnet() {
        let is_of_subnet = |text: &str, prefix_length| {
            let address = text.parse().expect("an address");
            let found = HostAddress {
                device: 1,
                address,
                prefix_length,
            };
            found.is_of_subnet()
        };
        assert!(is_of_subnet("192.0.2.1", 31) && is_of_subnet("2001:db8::1", 64));
        assert!(!is_of_subnet("192.0.2.1", 32) && !is_of_subnet("2001:db8::1", 128));
    }
}
