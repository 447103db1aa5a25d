//! Snapshot and options → addresses and devices to be served: pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use glob::Pattern;
use ipnet::IpNet;
use lb_loader::DeviceKind;

use super::snapshot::{Link, LinkKind, Snapshot};
use crate::endpoint_address::Family;

/// The device to which kube-proxy in IPVS mode adds every Service's address. It receives no packets.
const IPVS: &str = "kube-ipvs0";

/// Options about the host.
#[derive(Clone, Debug, Default)]
pub struct HostOptions {
    /// The node's own addresses, at most one of each family; without one, the Node object's or the default route's.
    pub node_ips: Vec<IpAddr>,
    /// Names of the node's devices; none: by the rules of [`host`](super).
    pub node_devices: Vec<Pattern>,
    /// Names of pods' devices; none: by the rules.
    pub pod_devices: Vec<Pattern>,
    /// Ranges of the host's addresses at which node ports are served; empty: all.
    pub node_port_addresses: Vec<IpNet>,
}

/// The machine's addresses, and its devices to be served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Its addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// Those of them at which node ports are served.
    pub node_ports: BTreeSet<IpAddr>,
    /// The IPv4 source address of packets to remote backends.
    pub v4: Option<Ipv4Addr>,
    /// The IPv6 source address of packets to remote backends.
    pub v6: Option<Ipv6Addr>,
    /// Families whose source address is a guess, as the Node object is not known yet.
    pub guessed: BTreeSet<Family>,
    /// The smallest MTU of the devices with these addresses, in bytes: the limit of packets to other nodes.
    pub mtu: Option<u32>,
    /// Devices to be served, by index, with their names.
    pub devices: BTreeMap<u32, (String, DeviceKind)>,
    /// Devices that would be served if their packets had an Ethernet header.
    pub unserved: BTreeMap<u32, String>,
}

impl View {
    /// `node_addresses`: of the Node object; `None`: it is not known yet.
    pub fn new(snapshot: &Snapshot, options: &HostOptions, node_addresses: Option<&[IpAddr]>) -> Self {
        let input = Input {
            snapshot,
            options,
            node_addresses: node_addresses.unwrap_or_default(),
        };
        let mut view = Self {
            addresses: input.hosts().map(|(_, address)| address).collect(),
            ..Self::default()
        };
        let ranges = &options.node_port_addresses;
        view.node_ports = view.addresses.clone();
        view.node_ports
            .retain(|address| ranges.is_empty() || ranges.iter().any(|range| range.contains(address)));
        for family in [Family::V4, Family::V6] {
            if node_addresses.is_none() && input.given(family).is_none() {
                view.guessed.insert(family);
            }
            match input.own(family) {
                Some(IpAddr::V4(address)) => view.v4 = Some(address),
                Some(IpAddr::V6(address)) => view.v6 = Some(address),
                None => {}
            }
        }
        let own: Vec<IpAddr> = view
            .v4
            .map(IpAddr::V4)
            .into_iter()
            .chain(view.v6.map(IpAddr::V6))
            .collect();
        view.mtu = input.mtu(&own);
        for (index, link) in &snapshot.links {
            match input.kind(*index, link, &own) {
                Some(kind) if link.ethernet || kind == DeviceKind::Loopback => {
                    view.devices.insert(*index, (link.name.clone(), kind));
                }
                Some(_) => {
                    view.unserved.insert(*index, link.name.clone());
                }
                None => {}
            }
        }
        view
    }
}

/// What a view is made of.
struct Input<'a> {
    snapshot: &'a Snapshot,
    options: &'a HostOptions,
    node_addresses: &'a [IpAddr],
}

impl Input<'_> {
    /// Addresses of the host, with their devices.
    fn hosts(&self) -> impl Iterator<Item = (u32, IpAddr)> {
        self.snapshot.addresses.iter().filter_map(|found| {
            let link = self.snapshot.links.get(&found.device)?;
            (link.up && link.name != IPVS).then_some((found.device, found.address))
        })
    }

    /// The node's own address of a family from the command line.
    fn given(&self, family: Family) -> Option<IpAddr> {
        let mut given = self.options.node_ips.iter().copied();
        given.find(|given| Family::of(*given) == family)
    }

    /// The node's own address of a family: given, or the Node object's, or of the device of the best default route.
    fn own(&self, family: Family) -> Option<IpAddr> {
        let here = |address: &&IpAddr| {
            Family::of(**address) == family && self.hosts().any(|(_, found)| found == **address)
        };
        if let Some(given) = self.given(family) {
            return Some(given);
        }
        if let Some(address) = self.node_addresses.iter().find(here) {
            return Some(*address);
        }
        let defaults = self.snapshot.defaults.iter().filter(|(of, _)| *of == family);
        defaults
            .flat_map(|(_, device)| self.hosts().filter(move |(at, _)| at == device))
            .map(|(_, address)| address)
            .find(|address| Family::of(*address) == family)
    }

    /// The smallest MTU of the devices that have one of these addresses.
    fn mtu(&self, own: &[IpAddr]) -> Option<u32> {
        let devices = self.hosts().filter(|(_, address)| own.contains(address));
        devices
            .filter_map(|(device, _)| self.snapshot.links.get(&device)?.mtu)
            .min()
    }

    /// The kind of a device, by the rules of [`host`](super), in their order.
    fn kind(&self, index: u32, link: &Link, own: &[IpAddr]) -> Option<DeviceKind> {
        let matches = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(&link.name));
        let allowed = |kind: DeviceKind| {
            let given = match kind {
                DeviceKind::Node => &self.options.node_devices[..],
                DeviceKind::Pod => &self.options.pod_devices,
                DeviceKind::Loopback => &[],
            };
            given.is_empty().then_some(kind)
        };
        let has = |mut wanted: Box<dyn FnMut(IpAddr) -> bool + '_>| {
            self.hosts()
                .any(|(device, address)| device == index && wanted(address))
        };
        if link.kind == LinkKind::Loopback {
            return link.up.then_some(DeviceKind::Loopback);
        }
        if matches(&self.options.pod_devices) {
            return Some(DeviceKind::Pod);
        }
        if matches(&self.options.node_devices) {
            return Some(DeviceKind::Node);
        }
        let uplink = self.snapshot.defaults.iter().any(|(_, device)| *device == index)
            || has(Box::new(|address| own.contains(&address)));
        if uplink && !self.is_port(link) {
            return allowed(DeviceKind::Node);
        }
        if self.is_pods(index, link) {
            return allowed(DeviceKind::Pod);
        }
        let bridges_pods = link.kind == LinkKind::Bridge
            && self
                .snapshot
                .links
                .iter()
                .any(|(&at, port)| port.controller == Some(index) && self.is_pods(at, port));
        if self.is_port(link) || bridges_pods || link.kind == LinkKind::Sink || link.name == IPVS {
            return None;
        }
        has(Box::new(|_| true))
            .then(|| allowed(DeviceKind::Node))
            .flatten()
    }

    /// Whether a controller takes the device's packets before the stack does. One of virtual routing does not.
    fn is_port(&self, link: &Link) -> bool {
        let controller = link.controller.and_then(|index| self.snapshot.links.get(&index));
        controller.is_some_and(|of| matches!(of.kind, LinkKind::Bridge | LinkKind::Bond))
    }

    /// Whether a device leads to a pod, and not to another network.
    fn is_pods(&self, index: u32, link: &Link) -> bool {
        let links = &self.snapshot.links;
        let bonded = || {
            let controller = link.controller.and_then(|of| links.get(&of));
            controller.is_some_and(|of| of.kind == LinkKind::Bond)
        };
        let carries = || links.values().any(|above| above.lower == Some(index));
        // Addresses count while the device is down, too.
        let has_subnet = || {
            let mut addresses = self.snapshot.addresses.iter();
            addresses.any(|found| found.device == index && found.is_of_subnet())
        };
        link.kind == LinkKind::Pair && link.elsewhere && !bonded() && !carries() && !has_subnet()
    }
}

#[cfg(test)]
mod tests;
