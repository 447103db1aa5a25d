//! What follows from a snapshot: pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use glob::Pattern;
use ipnet::IpNet;
use lb_loader::DeviceKind;

use super::snapshot::{Link, LinkKind, Snapshot};
use crate::transport::Family;

/// Where kube-proxy in IPVS mode puts every Service's address; nobody is reached there.
const IPVS: &str = "kube-ipvs0";

/// What the command line says about the host.
#[derive(Clone, Debug, Default)]
pub struct HostOptions {
    /// The node's own addresses, one of each family at most; otherwise the Node object's, or the default route's device
    /// has them.
    pub node_ips: Vec<IpAddr>,
    /// Names of the node's devices; none: by the rules of [`host`](super).
    pub node_devices: Vec<Pattern>,
    /// Names of pods' devices; none: by the rules.
    pub pod_devices: Vec<Pattern>,
    /// Where node ports answer; none: at every address of the host.
    pub node_port_addresses: Vec<IpNet>,
}

/// What the agent makes of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Its addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// Those of them at which node ports answer.
    pub node_ports: BTreeSet<IpAddr>,
    /// What packets to remote backends are sent from.
    pub v4: Option<Ipv4Addr>,
    /// The same, IPv6.
    pub v6: Option<Ipv6Addr>,
    /// Families of which this is a guess: the Node object decides, and is not known yet.
    pub guessed: BTreeSet<Family>,
    /// The smallest MTU of the devices that have these two: what a packet to another node may have, in bytes.
    pub mtu: Option<u32>,
    /// Devices to be served, by index, with their names.
    pub devices: BTreeMap<u32, (String, DeviceKind)>,
    /// Devices that should be served and can't: their packets have no Ethernet header.
    pub unserved: BTreeMap<u32, String>,
}

impl View {
    /// `internal`: addresses of the Node object; `None`: it is not known yet whether it has any.
    pub fn new(snapshot: &Snapshot, options: &HostOptions, internal: Option<&[IpAddr]>) -> Self {
        let looking = Looking {
            snapshot,
            options,
            internal: internal.unwrap_or_default(),
        };
        let mut view = Self {
            addresses: looking.hosts().map(|(_, address)| address).collect(),
            ..Self::default()
        };
        let ranges = &options.node_port_addresses;
        view.node_ports = view.addresses.clone();
        view.node_ports
            .retain(|address| ranges.is_empty() || ranges.iter().any(|range| range.contains(address)));
        for family in [Family::V4, Family::V6] {
            if internal.is_none() && looking.given(family).is_none() {
                view.guessed.insert(family);
            }
            match looking.own(family) {
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
        view.mtu = looking.mtu(&own);
        for (index, link) in &snapshot.links {
            match looking.kind(*index, link, &own) {
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

struct Looking<'a> {
    snapshot: &'a Snapshot,
    options: &'a HostOptions,
    internal: &'a [IpAddr],
}

impl Looking<'_> {
    /// Addresses of the host, with their devices.
    fn hosts(&self) -> impl Iterator<Item = (u32, IpAddr)> {
        self.snapshot.addresses.iter().filter_map(|found| {
            let link = self.snapshot.links.get(&found.device)?;
            (link.up && link.name != IPVS).then_some((found.device, found.address))
        })
    }

    /// The node's own address of a family, as the command line gives it.
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
        if let Some(internal) = self.internal.iter().find(here) {
            return Some(*internal);
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

    /// The rules, in their order.
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
                .any(|(&at, port)| port.port_of == Some(index) && self.is_pods(at, port));
        if self.is_port(link) || bridges_pods || link.kind == LinkKind::Sink || link.name == IPVS {
            return None;
        }
        has(Box::new(|_| true))
            .then(|| allowed(DeviceKind::Node))
            .flatten()
    }

    /// Whether packets of the device are taken by what it is a port of before the stack sees them. Not so for virtual
    /// routing, which is a controller, too.
    fn is_port(&self, link: &Link) -> bool {
        let controller = link.port_of.and_then(|index| self.snapshot.links.get(&index));
        controller.is_some_and(|of| matches!(of.kind, LinkKind::Bridge | LinkKind::Bond))
    }

    /// Whether a pod is behind a device, and not another network.
    fn is_pods(&self, index: u32, link: &Link) -> bool {
        let links = &self.snapshot.links;
        let bonded = || {
            let controller = link.port_of.and_then(|of| links.get(&of));
            controller.is_some_and(|of| of.kind == LinkKind::Bond)
        };
        let carries = || links.values().any(|above| above.lies_on == Some(index));
        // While the device is down, too: it leads to the same when it comes up.
        let has_subnet = || {
            let mut addresses = self.snapshot.addresses.iter();
            addresses.any(|found| found.device == index && found.is_of_subnet())
        };
        link.kind == LinkKind::Pair && link.elsewhere && !bonded() && !carries() && !has_subnet()
    }
}

#[cfg(test)]
mod tests;
