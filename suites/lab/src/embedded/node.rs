//! The underlay and what hangs on it.
//!
//! ```text
//!  underlay netns:  bridge ─┬─ apiserver ── eth0  API server
//!                           ├─ outside ──── eth0  outside client
//!                           └─ node1 … ──── eth0  node ── veth… ── eth0 pod
//! ```

use std::{fs::File, io, net::Ipv4Addr};

use super::{
    LabError,
    cgroup::Cgroup,
    error::io_error,
    links::{Links, Via},
    mounts,
    netns::NetNs,
    spawn::Placement,
    topology::{GATEWAY, NodeAddresses, UNDERLAY_PREFIX},
};

/// For every namespace. A new one takes IPv4 settings over from the host's (`devconf_inherit_init_net`), so what
/// matters is said.
const END: &[(&str, &str)] = &[
    ("ipv4/ip_forward", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/conf/all/accept_redirects", "0"),
    ("ipv4/conf/default/accept_redirects", "0"),
];
/// For nodes: they forward, and send nobody elsewhere (pod traffic for an address that is gone leaves where it
/// came from).
const NODE: &[(&str, &str)] = &[
    ("ipv4/ip_forward", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/conf/all/accept_redirects", "0"),
    ("ipv4/conf/default/accept_redirects", "0"),
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/default/send_redirects", "0"),
];

/// The bridge, in a namespace of its own.
///
/// Its address is everybody's default gateway, and it forwards nothing: a packet to a ClusterIP that nobody
/// translated is answered by silence.
#[derive(Debug)]
pub(super) struct Underlay {
    /// Kept for the bridge to live.
    _net: NetNs,
    links: Links,
    bridge: u32,
}

impl Underlay {
    pub(super) async fn create() -> Result<Self, LabError> {
        let (net, links) = NetNs::create(END).await?;
        let bridge = links.bridge("underlay").await?;
        links.address(bridge, GATEWAY, UNDERLAY_PREFIX).await?;
        Ok(Self {
            _net: net,
            links,
            bridge,
        })
    }

    /// A machine that is no node: a namespace on the underlay.
    pub(super) async fn machine(&self, name: &str, address: Ipv4Addr) -> Result<NetNs, LabError> {
        let (net, links) = NetNs::create(END).await?;
        self.plug(name, &net, &links, address).await?;
        Ok(net)
    }

    async fn plug(&self, name: &str, net: &NetNs, links: &Links, address: Ipv4Addr) -> Result<(), LabError> {
        self.links
            .veth(name, Some(self.bridge), "eth0", net.file())
            .await?;
        let eth0 = links.up("eth0").await?;
        links.address(eth0, address, UNDERLAY_PREFIX).await?;
        links.route(Ipv4Addr::UNSPECIFIED, 0, Via::Gateway(GATEWAY)).await
    }
}

/// A node's namespaces and cgroup.
#[derive(Debug)]
pub(super) struct Node {
    /// Its name in the API.
    pub(super) name: String,
    pub(super) addresses: NodeAddresses,
    pub(super) net: NetNs,
    pub(super) links: Links,
    pub(super) mnt: File,
    cgroup: Cgroup,
}

impl Node {
    /// Makes a node that has routes to its peers' pods.
    pub(super) async fn create(
        addresses: NodeAddresses,
        peers: &[NodeAddresses],
        underlay: &Underlay,
        lab: &Cgroup,
    ) -> Result<Self, LabError> {
        let name = addresses.name();
        let (net, links) = NetNs::create(NODE).await?;
        underlay.plug(&name, &net, &links, addresses.internal()).await?;
        for peer in peers.iter().filter(|peer| **peer != addresses) {
            let via = Via::Gateway(peer.internal());
            links
                .route(peer.pod_network(), NodeAddresses::POD_PREFIX, via)
                .await?;
        }
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

    /// Cgroup of processes that somebody starts on the node.
    pub(super) fn system_cgroup(&self) -> Cgroup {
        self.cgroup.child("system")
    }

    /// Cgroup of the agent alone, so that its programs can tell its sockets from everybody else's.
    pub(super) fn agent_cgroup(&self) -> Cgroup {
        self.cgroup.child("agent")
    }

    /// Cgroup of a pod, which need not be there.
    pub(super) fn pod_cgroup(&self, uid: &str) -> Cgroup {
        self.cgroup.child("pods").child(uid)
    }

    /// For a process on the node itself, in one of its cgroups.
    pub(super) fn placement(&self, cgroup: &Cgroup) -> Result<Placement, LabError> {
        let clone = |file: &File| -> io::Result<File> { file.try_clone() };
        let failed = || io_error(format!("duplicate a descriptor of {}", self.name));
        Ok(Placement {
            net: Some(clone(self.net.file()).map_err(failed())?),
            mnt: Some(clone(&self.mnt).map_err(failed())?),
            cgroup: Some(cgroup.entrance()?),
        })
    }
}
