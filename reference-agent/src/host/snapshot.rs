//! What the kernel says of links, addresses and default routes, as far as it matters here.

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

use crate::transport::Family;

/// A network namespace at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// By index.
    pub links: BTreeMap<u32, Link>,
    /// In the order of the kernel, which is that of preference: primary before secondary ones.
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
    /// Whether the other end of the pair is in another network namespace.
    pub elsewhere: bool,
    /// Bytes of its largest packet, without link header.
    pub mtu: Option<u32>,
    /// Index of what it is a port of.
    pub port_of: Option<u32>,
}

/// Kinds of devices, as far as they differ here.
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

/// An address of a device that somebody can be reached at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAddress {
    /// Index of the device.
    pub device: u32,
    /// The address.
    pub address: IpAddr,
}

impl Link {
    /// As the kernel tells it; `None`: without a name.
    pub(super) fn read(message: LinkMessage) -> Option<(u32, Self)> {
        let (mut name, mut info, mut elsewhere, mut mtu, mut port_of) = (None, None, false, None, None);
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(found) => name = Some(found),
                LinkAttribute::LinkInfo(found) => info = Some(found),
                LinkAttribute::Mtu(found) => mtu = Some(found),
                LinkAttribute::LinkNetNsId(_) => elsewhere = true,
                LinkAttribute::Controller(index) if index != 0 => port_of = Some(index),
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
            port_of,
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
    /// As the kernel tells it; `None`: nobody should be told to use it. Of this machine alone or of one link, unusable
    /// (duplicate), not usable yet, or not to be used for anything new (RFC 4862, 5.4 and 5.5.4).
    pub(super) fn read(message: &AddressMessage) -> Option<Self> {
        let reachable = matches!(message.header.scope, AddressScope::Universe | AddressScope::Site);
        let (mut local, mut address) = (None, None);
        let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
        for attribute in &message.attributes {
            match attribute {
                // Of a point-to-point device ADDRESS is the other end's.
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
