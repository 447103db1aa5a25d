//! What can be chosen where the datapath is opened.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
    path::PathBuf,
};

/// Where the datapath lives, and for which node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// A mounted bpffs; pins go below its folder `plumbline`.
    pub bpffs: PathBuf,
    /// The node's cgroup (v2): sockets of processes in it and below it see services.
    pub cgroup: PathBuf,
    /// What the programs are told of the node.
    pub node: NodeOptions,
    /// Entries of CONNTRACK, two for each connection, if the maps are made anew. `None`: by the machine's memory,
    /// 1/256 of it at 192 bytes for each, within [`CONNTRACK_LEAST`](lb_abi::capacity::CONNTRACK_LEAST) and
    /// [`CONNTRACK_MOST`](lb_abi::capacity::CONNTRACK_MOST). CHOSEN, SOCKET_REVNAT and SOCKET_BACKEND follow it: each has an entry for each connection,
    /// and [`SOCKETS_LEAST`](lb_abi::capacity::SOCKETS_LEAST) at least; the three take as much memory as CONNTRACK, 21 MiB at least.
    /// The kernel takes the memory at once, and counts it against the memory limit of the cgroup of the process that opens the datapath.
    pub flows: Option<u32>,
    /// How packet programs are attached to network devices.
    pub devices: DeviceMode,
    /// Whether the cgroup gets socket programs. Without them its sockets are served by the packet programs, as those of
    /// pods with a kernel of their own are; those of an earlier load are detached.
    pub sockets: bool,
}

impl Options {
    /// With everything else as it is by itself.
    pub fn new(bpffs: impl Into<PathBuf>, cgroup: impl Into<PathBuf>) -> Self {
        Self {
            bpffs: bpffs.into(),
            cgroup: cgroup.into(),
            node: NodeOptions::default(),
            flows: None,
            devices: DeviceMode::default(),
            sockets: true,
        }
    }
}

/// How packet programs are attached, where others attach theirs too. A program of TCX that lets a packet pass lets it
/// pass all programs after it, and all filters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DeviceMode {
    /// By a link of TCX ahead of every program that is there. Where the kernel has no TCX (before 6.6): as a filter of
    /// priority 1, ahead of those of this priority that are there.
    #[default]
    First,
    /// By a link of TCX after every program that is there; otherwise as a filter of priority 65535.
    Last,
    /// As a filter of clsact, which run after all of TCX, in the order of their priorities.
    Filter {
        /// From 1 on.
        priority: u16,
    },
}

/// What the programs are told of the node: [`Config`](lb_abi::Config). The network namespace that is the node's is
/// that of the thread that opens the datapath.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeOptions {
    /// The agent's own cgroup, whose sockets go on using the last good backends of a service that has lost all.
    pub own_cgroup: Option<PathBuf>,
    /// The address that packets to remote backends are sent from. `None`: that of the maps that are adopted; without
    /// one, none are sent over IPv4.
    pub v4: Option<Ipv4Addr>,
    /// The same, IPv6.
    pub v6: Option<Ipv6Addr>,
    /// The ports that packets to remote backends are sent from. `None`: [`SNAT_PORTS`](Self::SNAT_PORTS). Those among them that
    /// `net.ipv4.ip_local_port_range` gives to sockets are taken when none of the others is free.
    pub snat_ports: Option<RangeInclusive<u16>>,
    /// Most rejections (RST, ICMP errors) that a processor sends in a second. 0: no limit.
    pub rejects_per_second: u32,
}

impl NodeOptions {
    /// All but the privileged ones, as Linux's own masquerading has it (nf_nat_core.c, `nf_nat_l4proto_unique_tuple`).
    pub const SNAT_PORTS: RangeInclusive<u16> = 1024..=65_535;
    /// As many as Linux sends ICMP errors in a second (`net.ipv4.icmp_msgs_per_sec`).
    pub const REJECTS_PER_SECOND: u32 = 1000;
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            own_cgroup: None,
            v4: None,
            v6: None,
            snat_ports: None,
            rejects_per_second: Self::REJECTS_PER_SECOND,
        }
    }
}
