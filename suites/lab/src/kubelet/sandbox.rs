//! A pod's network and cgroup, in the manner of the CNI plugins ptp and host-local.
//!
//! ```text
//!  node netns: veth<id> 10.244.N.1/32 ──── eth0 10.244.N.5/32 :pod netns
//!              10.244.N.5 dev veth<id>     10.244.N.1 dev eth0, default via 10.244.N.1
//! ```
//!
//! and the same in IPv6, where the lab has it.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use cluster::spawn::Placement;

use crate::{
    LabError,
    cgroup::Cgroup,
    error::io_error,
    links::Via,
    netns::NetNs,
    topology::{PODS, everything},
    underlay::{Node, end_settings},
};

/// Namespaces, addresses and cgroup of a pod. [`Sandbox::remove`] releases them.
#[derive(Debug)]
pub(super) struct Sandbox {
    node: Arc<Node>,
    cgroup: Cgroup,
    network: Network,
    /// Folder for files of host processes, if processes that are started in the pod later are such.
    host: Option<PathBuf>,
}

#[derive(Debug)]
enum Network {
    OfNode,
    Own {
        net: Arc<NetNs>,
        veth: String,
        pool: Arc<Pool>,
        /// Number of the pod on its node, which determines its addresses.
        number: u8,
    },
}

impl Sandbox {
    /// Creates the sandbox of a pod with a network of its own.
    pub(super) async fn create(node: &Arc<Node>, uid: &str, pool: &Arc<Pool>) -> Result<Self, LabError> {
        let number = pool.take()?;
        let sandbox = Self::plug(node, uid, pool, number).await;
        if sandbox.is_err() {
            pool.give_back(number);
        }
        sandbox
    }

    async fn plug(node: &Arc<Node>, uid: &str, pool: &Arc<Pool>, number: u8) -> Result<Self, LabError> {
        let cgroup = node.pod_cgroup(uid);
        cgroup.create()?;
        let (net, links) = NetNs::create(&end_settings(node.addresses.families())).await?;
        // Unique in the lab, as the addresses are; 15 characters at most.
        let veth = format!("veth{}-{number}", node.addresses.number());
        // The link of an earlier pod may still exist while its namespace is being destroyed.
        node.links.remove(&veth).await?;
        node.links.veth(&veth, None, "eth0", net.file()).await?;

        let host = node.links.index(&veth).await?;
        let eth0 = links.up("eth0").await?;
        let (gateways, internal) = (node.addresses.pod_gateway(), node.addresses.internal());
        for ((address, gateway), internal) in
            node.addresses.pod(number).into_iter().zip(gateways).zip(internal)
        {
            node.links.address(host, gateway.into()).await?;
            let to_pod = Via::Link(host, Some(internal));
            node.links.route(address.into(), to_pod).await?;
            links.address(eth0, address.into()).await?;
            links.route(gateway.into(), Via::Link(eth0, None)).await?;
            links.route(everything(gateway), Via::Gateway(gateway)).await?;
        }

        let network = Network::Own {
            net: Arc::new(net),
            veth,
            pool: pool.clone(),
            number,
        };
        Ok(Self {
            node: node.clone(),
            cgroup,
            network,
            host: None,
        })
    }

    /// Creates the sandbox of a pod with host network. With a folder, processes that are started in it later are host
    /// processes.
    pub(super) fn of_node(node: &Arc<Node>, uid: &str, host: Option<PathBuf>) -> Result<Self, LabError> {
        let cgroup = node.pod_cgroup(uid);
        cgroup.create()?;
        Ok(Self {
            node: node.clone(),
            cgroup,
            network: Network::OfNode,
            host,
        })
    }

    /// Addresses of the pod: the node's, with host network.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        match &self.network {
            Network::OfNode => self.node.addresses.internal(),
            Network::Own { number, .. } => self.node.addresses.pod(*number),
        }
    }

    /// Placement of further processes in the pod.
    pub(super) fn place(&self) -> PodPlace {
        PodPlace {
            host: self.host.clone(),
            ..self.inside()
        }
    }

    /// Placement of the container.
    pub(super) fn placement(&self) -> Result<Placement, LabError> {
        self.inside().placement()
    }

    fn inside(&self) -> PodPlace {
        let net = match &self.network {
            Network::OfNode => PodNet::OfNode(self.node.clone()),
            Network::Own { net, .. } => PodNet::Own(net.clone()),
        };
        PodPlace {
            net,
            cgroup: self.cgroup.clone(),
            host: None,
        }
    }

    /// Kills all processes of the pod.
    pub(super) fn kill(&self) -> Result<(), LabError> {
        self.cgroup.kill()
    }

    /// Kills all processes of the pod and releases its resources.
    pub(super) async fn remove(self) -> Result<(), LabError> {
        let cgroup = self.cgroup;
        let removed = tokio::task::spawn_blocking(move || cgroup.remove()).await;
        if let Network::Own {
            net,
            veth,
            pool,
            number,
        } = self.network
        {
            drop(net);
            self.node.links.remove(&veth).await?;
            pool.give_back(number);
        }
        removed.unwrap_or_else(|error| {
            Err(LabError::Io {
                what: "remove a pod's cgroup".to_owned(),
                error: error.into(),
            })
        })
    }
}

/// Where a process in a pod runs; keeps the network namespace alive.
#[derive(Clone, Debug)]
pub(crate) struct PodPlace {
    net: PodNet,
    pub(crate) cgroup: Cgroup,
    /// Folder for files of host processes, if this is a place for them.
    pub(super) host: Option<PathBuf>,
}

#[derive(Clone, Debug)]
enum PodNet {
    OfNode(Arc<Node>),
    Own(Arc<NetNs>),
}

impl PodPlace {
    /// Placement of a process in the pod, or on its node.
    pub(super) fn placement(&self) -> Result<Placement, LabError> {
        if let (PodNet::OfNode(node), Some(_)) = (&self.net, &self.host) {
            return node.placement(&node.system_cgroup());
        }
        let net = self.net().file().try_clone();
        Ok(Placement {
            net: Some(net.map_err(io_error("duplicate a descriptor"))?),
            mnt: None,
            cgroup: Some(self.cgroup.procs()?),
            ..Placement::default()
        })
    }

    /// Network namespace of the pod.
    pub(crate) fn net(&self) -> &NetNs {
        match &self.net {
            PodNet::OfNode(node) => &node.net,
            PodNet::Own(net) => net,
        }
    }
}

/// Numbers of one node's pods, which determine their addresses. The number that was released longest ago is used
/// next, so that a late packet for a removed pod seldom reaches another one.
#[derive(Debug, Default)]
pub(super) struct Pool {
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    taken: BTreeSet<u8>,
    last: u8,
}

impl Pool {
    fn take(&self) -> Result<u8, LabError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, after): (Vec<u8>, Vec<u8>) = PODS.partition(|number| *number <= state.last);
        for number in after.into_iter().chain(before) {
            if state.taken.insert(number) {
                state.last = number;
                return Ok(number);
            }
        }
        Err(LabError::Host {
            what: "give another pod an address".to_owned(),
            why: format!("all {} of this node are taken", PODS.len()),
            remedy: "Delete a pod, or use another node",
        })
    }

    fn give_back(&self, number: u8) {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .taken
            .remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_round_and_run_out() {
        let pool = Pool::default();
        let first = pool.take().expect("the first");
        pool.give_back(first);
        assert_ne!(
            pool.take().expect("the second"),
            first,
            "not the one that was just given back"
        );
        for _ in 1..PODS.len() {
            pool.take().expect("one more");
        }
        let error = pool.take().expect_err("all are taken").to_string();
        assert!(error.contains("all 253 of this node are taken"), "{error}");
        pool.give_back(first);
        assert_eq!(pool.take().expect("the only one"), first);
    }
}
