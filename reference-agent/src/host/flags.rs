//! The command line of what the agent makes of the machine.

use std::net::IpAddr;

use clap::Args;
use glob::Pattern;
use ipnet::IpNet;

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
    /// Otherwise: veth and netkit devices whose other end is in another network namespace, and that are none of the
    /// node's.
    #[arg(long, value_name = "PATTERN")]
    pod_devices: Vec<Pattern>,
    /// Ranges of this host's addresses at which node ports answer, separated by commas; none: at all
    #[arg(long, value_name = "RANGES", value_delimiter = ',')]
    node_port_addresses: Vec<IpNet>,
}

impl HostFlags {
    /// As the pure part takes them.
    pub fn options(&self) -> HostOptions {
        HostOptions {
            node_ips: self.node_ips.clone(),
            node_devices: self.node_devices.clone(),
            pod_devices: self.pod_devices.clone(),
            node_port_addresses: self.node_port_addresses.clone(),
        }
    }
}
