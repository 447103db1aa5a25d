//! A pod's network and cgroup, in the manner of the CNI plugins ptp and host-local.
//!
//! ```text
//!  node netns: veth<id> 10.244.N.1/32 ──── eth0 10.244.N.5/32 :pod netns
//!              10.244.N.5 dev veth<id>     10.244.N.1 dev eth0, default via 10.244.N.1
//! ```

use std::{
    collections::BTreeSet,
    net::Ipv4Addr,
    sync::{Arc, Mutex, PoisonError},
};

use crate::embedded::{
    LabError, cgroup::Cgroup, error::io_error, links::Via, netns::NetNs, node::Node, spawn::Placement,
    topology::NodeAddresses,
};

/// A pod's own namespace forwards nothing, and takes replies from wherever they come.
const POD: &[(&str, &str)] = &[
    ("ipv4/ip_forward", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
];

/// What a pod runs in. [`Sandbox::remove`] gives it back.
#[derive(Debug)]
pub(super) struct Sandbox {
    node: Arc<Node>,
    cgroup: Cgroup,
    network: Network,
    /// The pod's address: the node's, if it has the node's network.
    address: Ipv4Addr,
}

#[derive(Debug)]
enum Network {
    OfNode,
    Own {
        net: Arc<NetNs>,
        veth: String,
        pool: Arc<Pool>,
    },
}

impl Sandbox {
    /// A pod with a network of its own.
    pub(super) async fn create(node: &Arc<Node>, uid: &str, pool: &Arc<Pool>) -> Result<Self, LabError> {
        let address = pool.take()?;
        let sandbox = Self::plug(node, uid, pool, address).await;
        if sandbox.is_err() {
            pool.give_back(address);
        }
        sandbox
    }

    async fn plug(
        node: &Arc<Node>,
        uid: &str,
        pool: &Arc<Pool>,
        address: Ipv4Addr,
    ) -> Result<Self, LabError> {
        let cgroup = node.pod_cgroup(uid);
        cgroup.create()?;
        let (net, links) = NetNs::create(POD).await?;
        let [_, _, third, last] = address.octets();
        // Unique on the node, as the address is; 15 characters at most.
        let veth = format!("veth{third}-{last}");
        let gateway = node.addresses.pod_gateway();
        // An earlier pod of this address may have left its end here, while its namespace is still dying.
        node.links.remove(&veth).await?;
        node.links.veth(&veth, None, "eth0", net.file()).await?;

        let host = node.links.index(&veth).await?;
        node.links.address(host, gateway, 32).await?;
        node.links
            .route(address, 32, Via::Link(host, Some(node.addresses.internal())))
            .await?;

        let eth0 = links.up("eth0").await?;
        links.address(eth0, address, 32).await?;
        links.route(gateway, 32, Via::Link(eth0, None)).await?;
        links
            .route(Ipv4Addr::UNSPECIFIED, 0, Via::Gateway(gateway))
            .await?;

        let network = Network::Own {
            net: Arc::new(net),
            veth,
            pool: pool.clone(),
        };
        Ok(Self {
            node: node.clone(),
            cgroup,
            network,
            address,
        })
    }

    /// A pod with the node's network.
    pub(super) fn of_node(node: &Arc<Node>, uid: &str) -> Result<Self, LabError> {
        let cgroup = node.pod_cgroup(uid);
        cgroup.create()?;
        let address = node.addresses.internal();
        Ok(Self {
            node: node.clone(),
            cgroup,
            network: Network::OfNode,
            address,
        })
    }

    pub(super) fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// For other processes in the pod.
    pub(super) fn place(&self) -> Place {
        let net = match &self.network {
            Network::OfNode => PlaceNet::OfNode(self.node.clone()),
            Network::Own { net, .. } => PlaceNet::Own(net.clone()),
        };
        Place {
            net,
            cgroup: self.cgroup.clone(),
        }
    }

    /// For the container.
    pub(super) fn placement(&self) -> Result<Placement, LabError> {
        let place = self.place();
        let net = place
            .net()
            .file()
            .try_clone()
            .map_err(io_error("duplicate a descriptor"))?;
        Ok(Placement {
            net: Some(net),
            mnt: None,
            cgroup: Some(self.cgroup.entrance()?),
        })
    }

    /// Kills whatever runs in the pod.
    pub(super) fn kill(&self) -> Result<(), LabError> {
        self.cgroup.kill()
    }

    /// Kills whatever runs in it and gives everything back.
    pub(super) async fn remove(self) -> Result<(), LabError> {
        let cgroup = self.cgroup;
        let removed = tokio::task::spawn_blocking(move || cgroup.remove()).await;
        if let Network::Own { net, veth, pool } = self.network {
            drop(net);
            self.node.links.remove(&veth).await?;
            pool.give_back(self.address);
        }
        removed.unwrap_or_else(|error| {
            Err(LabError::Io {
                what: "remove a pod's cgroup".to_owned(),
                error: error.into(),
            })
        })
    }
}

/// Where a process in a pod goes; it keeps the namespace alive.
#[derive(Clone, Debug)]
pub(in crate::embedded) struct Place {
    net: PlaceNet,
    pub(in crate::embedded) cgroup: Cgroup,
}

#[derive(Clone, Debug)]
enum PlaceNet {
    OfNode(Arc<Node>),
    Own(Arc<NetNs>),
}

impl Place {
    /// Its network namespace.
    pub(in crate::embedded) fn net(&self) -> &NetNs {
        match &self.net {
            PlaceNet::OfNode(node) => &node.net,
            PlaceNet::Own(net) => net,
        }
    }
}

/// Addresses of one node's pods. The one that was given back longest ago comes next, so that a late packet for a
/// pod that is gone seldom meets another.
#[derive(Debug)]
pub(super) struct Pool {
    range: Vec<Ipv4Addr>,
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    taken: BTreeSet<Ipv4Addr>,
    next: usize,
}

impl Pool {
    pub(super) fn new(addresses: NodeAddresses) -> Self {
        Self {
            range: addresses.pods().collect(),
            state: Mutex::default(),
        }
    }

    fn take(&self) -> Result<Ipv4Addr, LabError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for step in 0..self.range.len() {
            let index = (state.next + step) % self.range.len();
            let address = self.range[index];
            if state.taken.insert(address) {
                state.next = index + 1;
                return Ok(address);
            }
        }
        Err(LabError::Host {
            what: "give another pod an address".to_owned(),
            why: format!("all {} of this node are taken", self.range.len()),
            remedy: "Delete a pod, or use another node",
        })
    }

    fn give_back(&self, address: Ipv4Addr) {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .taken
            .remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_round_and_run_out() {
        let pool = Pool::new(NodeAddresses::new(1));
        let first = pool.take().expect("the first");
        pool.give_back(first);
        assert_ne!(
            pool.take().expect("the second"),
            first,
            "not the one that was just given back"
        );
        for _ in 1..pool.range.len() {
            pool.take().expect("one more");
        }
        let error = pool.take().expect_err("all are taken").to_string();
        assert!(error.contains("all 253 of this node are taken"), "{error}");
        pool.give_back(first);
        assert_eq!(pool.take().expect("the only one"), first);
    }
}
