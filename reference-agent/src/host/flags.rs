//! The command line of the machine's addresses and devices.

use std::{net::IpAddr, ops::RangeInclusive};

use clap::{Args, builder::TypedValueParser, value_parser};
use glob::Pattern;
use ipnet::IpNet;
use lb_abi::capacity;

use super::HostOptions;

/// Which addresses and devices of this machine are served.
#[derive(Debug, Args)]
pub struct HostFlags {
    /// This node's own address, one of each family at most
    ///
    /// Packets that outside clients send to backends on other nodes leave from it. Otherwise the first address of the
    /// Node object that a device here has, or an address of the default route's device.
    #[arg(long = "node-ip", value_name = "ADDRESS")]
    node_ips: Vec<IpAddr>,
    /// Devices that lead to the network, by name or pattern (eth*); may be given several times
    ///
    /// Otherwise: those that default routes lead by, those that have the node's address, and all others with an address
    /// that lead to no pod and are neither loopback, nor dummy, nor part of a bridge or bond.
    #[arg(long, value_name = "PATTERN")]
    node_devices: Vec<Pattern>,
    /// Devices that lead to pods of this node, by name or pattern (cali*); may be given several times
    ///
    /// Otherwise: veth and netkit devices whose other end is in another network namespace, unless they are the node's, have an
    /// address with a subnet, are a port of a bond, or have a VLAN, macvlan or ipvlan on them.
    #[arg(long, value_name = "PATTERN")]
    pod_devices: Vec<Pattern>,
    /// Ranges of this host's addresses at which node ports answer, separated by commas; none: at all
    #[arg(long, value_name = "RANGES", value_delimiter = ',')]
    node_port_addresses: Vec<IpNet>,
    /// Ports that packets of clients outside are sent from to backends on other nodes
    ///
    /// Each backend address and port has all of them for itself; a connection gives its port back when it is over, two
    /// minutes after both ends have closed it, or earlier where they run short. Those that
    /// net.ipv4.ip_local_port_range gives to sockets of the node are taken when none of the others is free, and each is checked
    /// for a socket first. Narrow it where something else in front of this node or on it (a firewall, another masquerading)
    /// needs ports for itself; widen it, or narrow net.ipv4.ip_local_port_range, when /metrics counts snat_reused or
    /// dropped_ports_exhausted.
    #[arg(long, value_name = "FIRST-LAST", default_value = "1024-65535", value_parser = ports)]
    snat_ports: RangeInclusive<u16>,
    /// Connections that are remembered, and sockets that are; by default by the machine's memory, 1/128 of it in all
    ///
    /// Of more than these, those that were not used for longest are forgotten (DATAPATH.md, "How much is remembered"). It
    /// counts when the maps are made: from a node's next boot on, or after `reference-agent cleanup`.
    #[arg(long, value_name = "NUMBER", value_parser = connections())]
    connections: Option<u32>,
}

/// Two entries of CONNTRACK for each, within its bounds.
fn connections() -> impl TypedValueParser<Value = u32> {
    let (least, most) = (capacity::CONNTRACK_LEAST / 2, capacity::CONNTRACK_MOST / 2);
    value_parser!(u32).range(i64::from(least)..=i64::from(most))
}

impl HostFlags {
    /// The options for [`View`](super::View).
    pub fn options(&self) -> HostOptions {
        HostOptions {
            node_ips: self.node_ips.clone(),
            node_devices: self.node_devices.clone(),
            pod_devices: self.pod_devices.clone(),
            node_port_addresses: self.node_port_addresses.clone(),
        }
    }

    /// The ports for SNAT.
    pub fn snat_ports(&self) -> RangeInclusive<u16> {
        self.snat_ports.clone()
    }

    /// How many entries a new CONNTRACK gets, if given.
    pub fn flows(&self) -> Option<u32> {
        self.connections.map(|connections| 2 * connections)
    }
}

/// `FIRST-LAST`.
fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let range = text.split_once('-').and_then(|(first, last)| {
        let range = first.trim().parse().ok()?..=last.trim().parse().ok()?;
        (*range.start() > 0 && !range.is_empty()).then_some(range)
    });
    range.ok_or_else(|| {
        format!("expected the first and the last port, from 1 to 65535, as in 1024-65535; found {text:?}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_ports_is_the_first_and_the_last_of_them() {
        assert_eq!(ports("1024-65535"), Ok(1024..=65_535));
        assert_eq!(ports("30000-30000"), Ok(30_000..=30_000));
        for wrong in ["", "1024", "0-10", "20-10", "1-65536", "1:2", "a-b"] {
            let error = ports(wrong).expect_err(wrong);
            assert!(
                error.starts_with("expected the first and the last port"),
                "{error}"
            );
        }
    }
}
