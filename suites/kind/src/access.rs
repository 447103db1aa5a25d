//! Pods, nodes and the outside client are containers of this host: processes are started in their namespaces and
//! cgroups.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use cluster::{
    Capability, ClusterError, NodeAccess, OutsideClient, PodAccess, kernel_has_sctp,
    spawn::{Placed, Placement, program},
};
use existing::ApiPods;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use lab::{NetNs, counters};
use tokio::time::timeout;

use super::{
    LIMITS, PROGRAMS,
    baseline::Baseline,
    containers::Container,
    error::{cluster_error, io_error},
    process_lookup,
};

/// Pods, nodes, and the outside client.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) nodes: Arc<Vec<Container>>,
    pub(super) client: DebugClient,
    pub(super) pods: ApiPods,
    /// First process of the outside client's container.
    pub(super) outside: u32,
    /// State of the nodes before their agents were installed, if it was recorded.
    pub(super) baseline: Option<Baseline>,
    /// The program `plumbline` of this host, which is on every node, too.
    pub(super) plumbline: PathBuf,
}

/// [`Client`] has no `Debug`.
pub(super) struct DebugClient(pub(super) Client);

impl std::fmt::Debug for DebugClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Client")
    }
}

/// The node of this name.
pub(super) fn node<'a>(nodes: &'a [Container], name: &str) -> Result<&'a Container, ClusterError> {
    let found = nodes.iter().find(|node| node.name == name);
    found.ok_or_else(|| ClusterError::not_found("node", name.to_owned()))
}

/// A program with its placement.
fn placed(plumbline: &Path, argv: &[String], placement: Placement) -> Result<Placed, ClusterError> {
    let command = program(plumbline, argv).map_err(|error| ClusterError::Failed {
        what: "start a program".to_owned(),
        why: error.to_string(),
    })?;
    Ok(Placed { command, placement })
}

impl Places {
    /// Placement in the container of a pod.
    async fn pod(&self, namespace: &str, name: &str) -> Result<Placement, ClusterError> {
        let what = format!("find the pod {namespace}/{name}");
        let gone = || ClusterError::not_found("running pod", format!("{namespace}/{name}"));
        let failed = |why: String| ClusterError::Failed {
            what: what.clone(),
            why,
        };
        let pods: Api<Pod> = Api::namespaced(self.client.0.clone(), namespace);
        let pod = timeout(LIMITS.request, pods.get_opt(name))
            .await
            .map_err(|_| failed(format!("no answer within {:?}", LIMITS.request)))?
            .map_err(|error| failed(error.to_string()))?
            .ok_or_else(gone)?;
        let node_name = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.node_name.as_deref())
            .ok_or_else(gone)?;
        let node = node(&self.nodes, node_name)?;
        let id = process_lookup::container_id(&pod).ok_or_else(gone)?;
        process_lookup::in_container(node, id)
            .map_err(cluster_error(&what))?
            .ok_or_else(gone)
    }
}

#[async_trait]
impl PodAccess for Places {
    async fn command(&self, namespace: &str, pod: &str, argv: &[String]) -> Result<Placed, ClusterError> {
        placed(&self.plumbline, argv, self.pod(namespace, pod).await?)
    }

    async fn log(&self, namespace: &str, pod: &str) -> Result<String, ClusterError> {
        self.pods.log(namespace, pod).await
    }

    async fn intact(&self) -> Result<(), ClusterError> {
        // Nodes first: they don't come back by themselves.
        if let Some(gone) = self.nodes.iter().find(|node| !node.cgroup.exists()) {
            return Err(ClusterError::not_found("running node", gone.name.clone()));
        }
        self.pods.intact().await
    }

    /// Saves the nodes, and the counters of their networks.
    async fn evidence(&self, folder: &Path) -> Result<(), ClusterError> {
        let listed = self.pods.evidence(folder).await;
        for node in self.nodes.iter() {
            let network = node.namespace("net").map(NetNs::of);
            let counted = network.and_then(|network| counters(&network).map_err(io_error("read counters")));
            let counted = counted.unwrap_or_else(|error| format!("{error}\n"));
            keep(&folder.join(format!("network-{}.txt", node.name)), &counted)?;
        }
        listed
    }
}

/// Writes a file of evidence.
fn keep(path: &Path, text: &str) -> Result<(), ClusterError> {
    fs::write(path, text).map_err(|error| ClusterError::Failed {
        what: format!("write {}", path.display()),
        why: error.to_string(),
    })
}

#[async_trait]
impl NodeAccess for Places {
    fn capabilities(&self) -> BTreeSet<Capability> {
        let mut all = BTreeSet::from([
            Capability::HostNetwork,
            Capability::CgroupNamespaces,
            Capability::RawSockets,
            Capability::ThousandsOfServices,
        ]);
        all.extend(self.baseline.iter().map(|_| Capability::Baseline));
        if kernel_has_sctp() {
            all.insert(Capability::Sctp);
        }
        all
    }

    async fn command(&self, name: &str, argv: &[String]) -> Result<Placed, ClusterError> {
        let found = node(&self.nodes, name)?;
        let placement =
            process_lookup::of_node(found).map_err(cluster_error(&format!("enter the node {name}")))?;
        placed(&Path::new(PROGRAMS).join("plumbline"), argv, placement)
    }

    fn cgroup_root(&self) -> &Path {
        let first = self.nodes.first();
        first.map_or(Path::new("/sys/fs/cgroup"), |node| node.cgroup_root.as_path())
    }

    async fn baseline(&self, node: &str) -> Result<BTreeMap<String, usize>, ClusterError> {
        let all = self.baseline.as_ref().ok_or(ClusterError::unsupported(
            "tell what nodes had before their agents",
        ))?;
        let found = all.get(node).cloned();
        found.ok_or_else(|| ClusterError::not_found("node", node.to_owned()))
    }
}

#[async_trait]
impl OutsideClient for Places {
    async fn command(&self, argv: &[String]) -> Result<Placed, ClusterError> {
        let placement =
            process_lookup::beside(self.outside).map_err(cluster_error("enter the client outside"))?;
        placed(&self.plumbline, argv, placement)
    }
}
