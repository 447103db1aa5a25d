//! The underlay network and its machines.
//!
//! ```text
//!  underlay netns:  bridge ─┬─ apiserver ── eth0  API server
//!                           ├─ outside ──── eth0  outside client
//!                           └─ node1 … ──── eth0  node ── veth… ── eth0 pod
//! ```

use std::{fs::File, io, net::IpAddr};

use cluster::spawn::Placement;

use super::{
    IpFamilies, LabError,
    balancer::Router,
    cgroup::Cgroup,
    error::io_error,
    links::{Links, Via},
    mounts,
    netns::{NetNs, Settings},
    topology::{NodeAddresses, everything, on_underlay},
};

/// For every namespace. New ones inherit IPv4 settings from the host (`devconf_inherit_init_net`), so relevant
/// settings are explicit.
const END: &[(&str, &str)] = &[
    ("ipv4/ip_forward", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/conf/all/accept_redirects", "0"),
    ("ipv4/conf/default/accept_redirects", "0"),
];
/// For nodes: they forward, and send no redirects (pod traffic for a removed address leaves through the link on which
/// it came).
const NODE: &[(&str, &str)] = &[
    ("ipv4/ip_forward", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/conf/all/accept_redirects", "0"),
    ("ipv4/conf/default/accept_redirects", "0"),
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/default/send_redirects", "0"),
    EVERY_REFUSAL_IPV4,
];

/// ICMP errors without rate limit. Refusals may be ICMP errors, as kube-proxy's are, and the kernel limits them to
/// one per second for each client (after 6); the others would look like silence to probes, which dial more often. The
/// value is the default without destination unreachable (bit 3).
pub const EVERY_REFUSAL_IPV4: (&str, &str) = ("ipv4/icmp_ratemask", "6160");
/// As [`EVERY_REFUSAL_IPV4`], for IPv6, where destination unreachable is type 1.
pub const EVERY_REFUSAL_IPV6: (&str, &str) = ("ipv6/icmp/ratemask", "0,3-127");

/// Multipath routes by addresses, protocol and ports (0x37, Linux 5.14). Policy 1 would use the socket's hash, which
/// packets keep within a host: it is missing for packets without a socket, such as a RST for an unknown connection,
/// and changes after each timeout. A real router has only the packet.
pub const BY_CONNECTION_IPV4: [(&str, &str); 2] = [
    ("ipv4/fib_multipath_hash_policy", "3"),
    ("ipv4/fib_multipath_hash_fields", "55"),
];
/// As [`BY_CONNECTION_IPV4`], for IPv6.
pub const BY_CONNECTION_IPV6: [(&str, &str); 2] = [
    ("ipv6/fib_multipath_hash_policy", "3"),
    ("ipv6/fib_multipath_hash_fields", "55"),
];

/// For the bridge: it forwards, chooses multipath routes by connection, and sends no redirects.
const BRIDGE: &[(&str, &str)] = &[
    ("ipv4/ip_forward", "1"),
    BY_CONNECTION_IPV4[0],
    BY_CONNECTION_IPV4[1],
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/conf/all/accept_redirects", "0"),
    ("ipv4/conf/default/accept_redirects", "0"),
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/default/send_redirects", "0"),
];

/// For every namespace with IPv6. Addresses are unique by plan, so duplicate address detection and router
/// solicitation are off.
const END_IPV6: &[(&str, &str)] = &[
    ("ipv6/conf/all/disable_ipv6", "0"),
    ("ipv6/conf/default/disable_ipv6", "0"),
    ("ipv6/conf/all/forwarding", "0"),
    ("ipv6/conf/all/accept_dad", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/all/accept_ra", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/all/accept_redirects", "0"),
    ("ipv6/conf/default/accept_redirects", "0"),
];
/// For nodes with IPv6.
const NODE_IPV6: &[(&str, &str)] = &[("ipv6/conf/all/forwarding", "1"), EVERY_REFUSAL_IPV6];
/// For the bridge with IPv6.
const BRIDGE_IPV6: &[(&str, &str)] = &[
    ("ipv6/conf/all/forwarding", "1"),
    BY_CONNECTION_IPV6[0],
    BY_CONNECTION_IPV6[1],
];

/// Settings of a machine that does not forward: a pod, the API servers', the outside client.
pub(super) fn end_settings(families: IpFamilies) -> Settings {
    settings(families, END, &[])
}

fn settings(families: IpFamilies, all: &Table, ipv6: &Table) -> Settings {
    let mut settings = all.to_vec();
    if families.has_ipv6() {
        settings.extend(END_IPV6);
        settings.extend(ipv6);
    }
    settings
}

type Table = [(&'static str, &'static str)];

/// The bridge of the underlay, in a namespace of its own.
///
/// Its addresses are the default gateway of all machines, and it forwards only packets for load balancers: a packet
/// for a ClusterIP that was not translated is dropped silently.
#[derive(Debug)]
pub(super) struct Underlay {
    /// Keeps the bridge alive.
    _net: NetNs,
    links: Links,
    bridge: u32,
    families: IpFamilies,
}

impl Underlay {
    pub(super) async fn create(families: IpFamilies) -> Result<Self, LabError> {
        let (net, links) = NetNs::create(&settings(families, BRIDGE, BRIDGE_IPV6)).await?;
        let bridge = links.bridge("underlay").await?;
        for address in families.gateway() {
            links.address(bridge, on_underlay(address)).await?;
            // A router sends an ICMP error for a packet without a route, but not for a blackhole.
            links.route(everything(address), Via::Blackhole).await?;
        }
        Ok(Self {
            _net: net,
            links,
            bridge,
            families,
        })
    }

    /// The bridge as a router for load balancers.
    pub(super) fn router(&self) -> Router {
        Router::new(self.links.clone(), self.bridge)
    }

    /// Creates a machine on the underlay that is no node.
    pub(super) async fn machine(&self, name: &str, addresses: &[IpAddr]) -> Result<NetNs, LabError> {
        let (net, links) = NetNs::create(&end_settings(self.families)).await?;
        self.plug(name, &net, &links, addresses).await?;
        Ok(net)
    }

    /// Creates the machine of the API servers, which has routes to pods, as nodes have.
    pub(super) async fn control_plane(
        &self,
        addresses: &[IpAddr],
        nodes: &[NodeAddresses],
    ) -> Result<NetNs, LabError> {
        let (net, links) = NetNs::create(&end_settings(self.families)).await?;
        self.plug("apiserver", &net, &links, addresses).await?;
        routes_to_pods(&links, nodes).await?;
        Ok(net)
    }

    /// Routes addresses to a machine that has them beside its own, by a hop that takes packets of so many bytes.
    pub(super) async fn narrow(&self, to: &[IpAddr], by: &[IpAddr], bytes: u32) -> Result<(), LabError> {
        for (to, by) in to.iter().zip(by) {
            self.links.narrow_route((*to).into(), *by, bytes).await?;
        }
        Ok(())
    }

    /// Removes these routes.
    pub(super) async fn unroute(&self, to: &[IpAddr]) -> Result<(), LabError> {
        for to in to {
            self.links.unroute((*to).into()).await?;
        }
        Ok(())
    }

    /// Pulls the plug of a machine: its link has no carrier.
    pub(super) async fn disconnect(&self, name: &str) -> Result<(), LabError> {
        self.links.down(name).await
    }

    /// Undoes [`Underlay::disconnect`].
    pub(super) async fn connect(&self, name: &str) -> Result<(), LabError> {
        self.links.up(name).await.map(drop)
    }

    async fn plug(
        &self,
        name: &str,
        net: &NetNs,
        links: &Links,
        addresses: &[IpAddr],
    ) -> Result<(), LabError> {
        self.links
            .veth(name, Some(self.bridge), "eth0", net.file())
            .await?;
        let eth0 = links.up("eth0").await?;
        for address in addresses {
            links.address(eth0, on_underlay(*address)).await?;
        }
        for gateway in self.families.gateway() {
            links.route(everything(gateway), Via::Gateway(gateway)).await?;
        }
        Ok(())
    }
}

/// Adds routes to the pods behind each node.
async fn routes_to_pods(
    links: &Links,
    nodes: impl IntoIterator<Item = &NodeAddresses>,
) -> Result<(), LabError> {
    for node in nodes {
        for (network, address) in node.pod_networks().into_iter().zip(node.internal()) {
            links.route(network, Via::Gateway(address)).await?;
        }
    }
    Ok(())
}

/// A node's namespaces and cgroup.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) addresses: NodeAddresses,
    pub(super) net: NetNs,
    pub(super) links: Links,
    pub(super) mnt: File,
    cgroup: Cgroup,
}

impl Node {
    /// Creates a node with routes to its peers' pods.
    pub(super) async fn create(
        addresses: NodeAddresses,
        peers: &[NodeAddresses],
        underlay: &Underlay,
        lab: &Cgroup,
    ) -> Result<Self, LabError> {
        let name = addresses.name();
        let (net, links) = NetNs::create(&settings(addresses.families(), NODE, NODE_IPV6)).await?;
        underlay.plug(&name, &net, &links, &addresses.internal()).await?;
        routes_to_pods(&links, peers.iter().filter(|peer| **peer != addresses)).await?;
        let cgroup = lab.child(&name);
        for child in ["system", "agent", "pods"] {
            cgroup.child(child).create()?;
        }
        let mnt = mounts::create(&net, &cgroup)?;
        Ok(Self {
            name,
            addresses,
            net,
            links,
            mnt,
            cgroup,
        })
    }

    /// Cgroup of everything that runs on the node.
    pub(super) fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// Cgroup of processes that are started on the node.
    pub(super) fn system_cgroup(&self) -> Cgroup {
        self.cgroup.child("system")
    }

    /// Cgroup of the agent alone, so that its programs recognise its own sockets.
    pub(super) fn agent_cgroup(&self) -> Cgroup {
        self.cgroup.child("agent")
    }

    /// Cgroup of a pod, which need not exist.
    pub(super) fn pod_cgroup(&self, uid: &str) -> Cgroup {
        self.cgroup.child("pods").child(uid)
    }

    /// Placement of a process on the node, in one of its cgroups.
    pub(super) fn placement(&self, cgroup: &Cgroup) -> Result<Placement, LabError> {
        let clone = |file: &File| -> io::Result<File> { file.try_clone() };
        let failed = || io_error(format!("duplicate a descriptor of {}", self.name));
        Ok(Placement {
            net: Some(clone(self.net.file()).map_err(failed())?),
            mnt: Some(clone(&self.mnt).map_err(failed())?),
            cgroup: Some(cgroup.procs()?),
            ..Placement::default()
        })
    }
}
