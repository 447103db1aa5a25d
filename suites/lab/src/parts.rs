//! The parts of a running lab, and the cluster that consists of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    num::NonZeroU32,
    path::Path,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use cluster::{
    AgentControl, AgentState, ApiEndpoint, ApiFault, ApiServer, Capability, Cluster, ClusterError,
    ControlPlaneFaults, EVERY_PIN, FaultLease, NodeAccess, OutsideClient, Parts, Place, PodAccess, Stop,
    Variant, kernel_has_sctp, spawn::Placed,
};

use super::{
    Advertise, LIMITS,
    access::LabAccess,
    evidence,
    mounts::CGROUPS,
    protocol::{Reply, Request},
    request::{call, cluster_error, open, unexpected},
};

/// Limit of a fault's begin and end: a server that stops completes its requests, and a restarted server is awaited
/// until it is ready.
const FAULT: Duration = LIMITS
    .control
    .saturating_add(LIMITS.agent_stop)
    .saturating_add(LIMITS.api_serves);

/// The cluster of a lab.
pub(super) fn cluster(access: &Arc<LabAccess>) -> Cluster {
    let parts = Parts {
        nodes: Some(Arc::clone(access) as _),
        agents: Some(Arc::clone(access) as _),
        control_plane: Some(Arc::clone(access) as _),
        outside: Some(Arc::clone(access) as _),
        has_load_balancers: true,
    };
    let description = access.about.description.clone();
    Cluster::new(description, access.client.clone(), Arc::clone(access) as _, parts)
}

#[async_trait]
impl PodAccess for LabAccess {
    async fn command(&self, namespace: &str, pod: &str, argv: &[String]) -> Result<Placed, ClusterError> {
        let place = Place::Pod {
            namespace: namespace.to_owned(),
            name: pod.to_owned(),
        };
        self.placed(&place, argv).await
    }

    async fn log(&self, namespace: &str, pod: &str) -> Result<String, ClusterError> {
        match tokio::fs::read_to_string(self.dir.pod_log(namespace, pod)).await {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(ClusterError::not_found("pod", format!("{namespace}/{pod}")))
            }
            Err(error) => {
                let what = format!("read the log of {namespace}/{pod}");
                Err(ClusterError::failed(what, error))
            }
        }
    }

    async fn intact(&self) -> Result<(), ClusterError> {
        let what = "find the lab's supervisor";
        self.status().await.map(drop).map_err(cluster_error(what))
    }

    async fn evidence(&self, folder: &Path) -> Result<(), ClusterError> {
        evidence::of_cluster(self, folder).await
    }
}

#[async_trait]
impl NodeAccess for LabAccess {
    fn capabilities(&self) -> BTreeSet<Capability> {
        let mut all = BTreeSet::from([
            Capability::HostNetwork,
            Capability::Baseline,
            Capability::CgroupAbove,
            Capability::CgroupNamespaces,
            Capability::RawSockets,
            Capability::Zones,
            Capability::SecondNetwork,
            Capability::PowerLoss,
            Capability::ThousandsOfServices,
            Capability::StartsWithoutApi,
            Capability::NarrowHop,
        ]);
        if kernel_has_sctp() {
            all.insert(Capability::Sctp);
        }
        all
    }

    async fn command(&self, node: &str, argv: &[String]) -> Result<Placed, ClusterError> {
        let place = Place::Host {
            node: node.to_owned(),
        };
        self.placed(&place, argv).await
    }

    fn cgroup_root(&self) -> &Path {
        Path::new(CGROUPS)
    }

    /// A lab's node has nothing but its agent.
    async fn baseline(&self, _: &str) -> Result<BTreeMap<String, usize>, ClusterError> {
        Ok(BTreeMap::new())
    }

    async fn lose_power(&self, node: &str, lasts: Duration) -> Result<FaultLease, ClusterError> {
        let node = node.to_owned();
        let what = format!("take the power of {node}");
        let stream = open(&self.dir, &Request::PowerLoss { node, lasts }).await;
        FaultLease::begun(stream.map_err(cluster_error(what))?, LIMITS.control).await
    }
}

#[async_trait]
impl OutsideClient for LabAccess {
    async fn command(&self, argv: &[String]) -> Result<Placed, ClusterError> {
        self.placed(&Place::Outside, argv).await
    }

    async fn narrow_hop(&self, lasts: Duration) -> Result<(FaultLease, Vec<IpAddr>), ClusterError> {
        let stream = open(&self.dir, &Request::NarrowHop { lasts }).await;
        let stream = stream.map_err(cluster_error("make a narrow hop"))?;
        let lease = FaultLease::begun(stream, LIMITS.control).await?;
        Ok((lease, self.about.config.families.behind_hop()))
    }
}

#[async_trait]
impl AgentControl for LabAccess {
    fn capabilities(&self) -> BTreeSet<Capability> {
        BTreeSet::from([
            Capability::Node,
            Capability::AgentCleanup,
            Capability::PodsWithoutAgents,
            Capability::WriteFailures,
        ])
    }

    fn pins(&self) -> Vec<String> {
        vec![EVERY_PIN.to_owned()]
    }

    async fn state(&self, node: &str) -> Result<AgentState, ClusterError> {
        let what = format!("ask for the agent of {node}");
        let request = Request::Agent {
            node: node.to_owned(),
        };
        let reply = call(&self.dir, &request, LIMITS.control).await;
        match reply.map_err(cluster_error(&what))? {
            Reply::Agent(state) => Ok(state),
            _ => Err(cluster_error(what)(unexpected(&self.dir))),
        }
    }

    async fn stop(&self, node: &str, how: Stop) -> Result<(), ClusterError> {
        let node = node.to_owned();
        self.order(Request::StopAgent { node, how }).await
    }

    async fn start(&self, node: &str, variant: Option<Variant>) -> Result<(), ClusterError> {
        let node = node.to_owned();
        self.order(Request::StartAgent { node, variant }).await
    }

    async fn set_api_endpoint(&self, node: &str, endpoint: Option<&ApiEndpoint>) -> Result<(), ClusterError> {
        let request = Request::SetApiEndpoint {
            node: node.to_owned(),
            endpoint: endpoint.cloned(),
        };
        self.order(request).await
    }

    async fn watch_writes(&self, node: &str, lasts: Duration) -> Result<FaultLease, ClusterError> {
        let node = node.to_owned();
        let what = format!("watch what the agent of {node} writes to the kernel");
        let stream = open(&self.dir, &Request::WatchWrites { node, lasts }).await;
        FaultLease::begun(stream.map_err(cluster_error(what))?, LIMITS.control).await
    }

    async fn fail_writes(&self, node: &str, one_of: Option<NonZeroU32>) -> Result<u64, ClusterError> {
        let what = format!("let writes of the agent of {node} fail");
        let node = node.to_owned();
        let reply = call(&self.dir, &Request::FailWrites { node, one_of }, LIMITS.control).await;
        match reply.map_err(cluster_error(&what))? {
            Reply::FailedWrites(failed) => Ok(failed),
            _ => Err(cluster_error(what)(unexpected(&self.dir))),
        }
    }

    async fn clean_up(&self, node: &str) -> Result<(), ClusterError> {
        let node = node.to_owned();
        self.order(Request::CleanUpAgent { node }).await
    }

    async fn dump(&self, node: &str) -> Result<Option<String>, ClusterError> {
        let dump = evidence::dump(self, node).await.transpose();
        dump.map_err(|why| ClusterError::failed(format!("read what the agent of {node} has programmed"), why))
    }

    async fn differences(&self, node: &str) -> Result<Option<String>, ClusterError> {
        let differences = evidence::differences(self, node).await.transpose();
        let what = || format!("compare what the agent of {node} has programmed with what the API lists");
        differences.map_err(|why| ClusterError::failed(what(), why))
    }

    async fn evidence(&self, folder: &Path) -> Result<(), ClusterError> {
        evidence::of_agents(self, folder).await
    }
}

#[async_trait]
impl ControlPlaneFaults for LabAccess {
    fn capabilities(&self) -> BTreeSet<Capability> {
        let plane = &self.about.config.control_plane;
        let is_ours = plane.programs.is_none();
        let mut all = BTreeSet::from([Capability::ApiFaults]);
        if is_ours {
            all.extend([Capability::Unreconciled, Capability::WrongAnswers]);
        }
        if plane.servers > 1 && (is_ours || plane.advertise == Advertise::Shared) {
            all.insert(Capability::SharedAddress);
        }
        all
    }

    async fn servers(&self) -> Result<Vec<ApiServer>, ClusterError> {
        let what = "ask for the API servers";
        let reply = call(&self.dir, &Request::ApiServers, LIMITS.control).await;
        match reply.map_err(cluster_error(what))? {
            Reply::ApiServers(all) => Ok(all),
            _ => Err(cluster_error(what)(unexpected(&self.dir))),
        }
    }

    async fn begin(&self, fault: &ApiFault, lasts: Duration) -> Result<FaultLease, ClusterError> {
        let request = Request::ApiFault {
            fault: fault.clone(),
            lasts,
        };
        let stream = open(&self.dir, &request).await;
        let stream = stream.map_err(cluster_error(format!("begin the fault that {fault}")))?;
        FaultLease::begun(stream, FAULT).await
    }

    async fn jump_versions(&self, by: u32) -> Result<(), ClusterError> {
        self.order(Request::JumpVersions { by }).await
    }
}
