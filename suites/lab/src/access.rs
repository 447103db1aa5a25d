//! The parts of a lab that is up: what its supervisor does, and processes in its namespaces and cgroups.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use cluster::{
    AgentControl, AgentState, ApiEndpoint, ApiFault, ApiServer, Capability, Cluster, ClusterError,
    ControlPlaneFaults, EVERY_PIN, FaultLease, NODE_FOLDER, NodeAccess, OutsideClient, Parts, Place,
    PodAccess, Stop, Variant,
    spawn::{self, Placed, Placement},
};
use kube::Client;

use super::{
    Advertise, LIMITS, LabError,
    api::kube_client,
    dir::LabDir,
    error::io_error,
    evidence,
    mounts::CGROUPS,
    protocol::{About, Descriptor, Located, Reply, Request, Status},
    request::{call, cluster_error, open, unexpected},
};

/// What a fault may take to begin or to end: an API server that stops answers what is under way, and one that was down is
/// awaited until it serves.
const FAULT: Duration = LIMITS
    .control
    .saturating_add(LIMITS.agent_stop)
    .saturating_add(LIMITS.api_serves);

/// A lab that is up, by its supervisor.
pub(super) struct LabAccess {
    pub(super) dir: LabDir,
    pub(super) about: About,
    pub(super) client: Client,
}

/// [`Client`] has no `Debug`.
impl fmt::Debug for LabAccess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LabAccess")
            .field("about", &self.about)
            .finish_non_exhaustive()
    }
}

impl LabAccess {
    /// Of the lab of a folder.
    ///
    /// # Errors
    /// There is none, or it does not answer.
    pub(super) async fn of(dir: LabDir) -> Result<Self, LabError> {
        let about = match call(&dir, &Request::About, LIMITS.control).await? {
            Reply::About(about) => *about,
            _ => return Err(unexpected(&dir)),
        };
        let client = kube_client(&dir.kubeconfig()).await?;
        Ok(Self { dir, about, client })
    }

    /// Assembled.
    pub(super) fn cluster(self: &Arc<Self>) -> Cluster {
        let parts = Parts {
            nodes: Some(Arc::clone(self) as _),
            agents: Some(Arc::clone(self) as _),
            control_plane: Some(Arc::clone(self) as _),
            outside: Some(Arc::clone(self) as _),
            has_load_balancers: true,
        };
        let pods = Arc::clone(self);
        Cluster::new(self.about.description.clone(), self.client.clone(), pods, parts)
    }

    pub(super) async fn status(&self) -> Result<Status, LabError> {
        match call(&self.dir, &Request::Status, LIMITS.control).await? {
            Reply::Status(status) => Ok(status),
            _ => Err(unexpected(&self.dir)),
        }
    }

    pub(super) async fn locate(&self, place: &Place) -> Result<Located, LabError> {
        let request = Request::Locate { place: place.clone() };
        match call(&self.dir, &request, LIMITS.control).await? {
            Reply::Located(located) => Ok(located),
            _ => Err(unexpected(&self.dir)),
        }
    }

    /// What runs a program in a place.
    pub(super) async fn place(&self, place: &Place, argv: &[String]) -> Result<Placed, LabError> {
        let located = self.locate(place).await?;
        let placement = self.placement(&located)?;
        let mut command =
            spawn::program(&self.about.config.plumbline, argv).map_err(io_error("start a program"))?;
        if let Some(kubeconfig) = located.kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        if let Place::Host { node } = place {
            command.env(NODE_FOLDER, self.dir.node_folder(node));
        }
        Ok(Placed { command, placement })
    }

    async fn placed(&self, place: &Place, argv: &[String]) -> Result<Placed, ClusterError> {
        let placed = self.place(place, argv).await;
        placed.map_err(cluster_error(format!("start a program {place}")))
    }

    fn placement(&self, located: &Located) -> Result<Placement, LabError> {
        let procs = located.cgroup.join("cgroup.procs");
        let cgroup = OpenOptions::new().write(true).open(&procs);
        let cgroup = cgroup.map_err(io_error(format!("open {}", procs.display())))?;
        let mnt = located.mnt.map(|mnt| self.namespace(mnt)).transpose()?;
        Ok(Placement {
            net: Some(self.namespace(located.net)?),
            mnt,
            cgroup: Some(cgroup),
            ..Placement::default()
        })
    }

    pub(super) fn namespace(&self, descriptor: Descriptor) -> Result<File, LabError> {
        let path = format!("/proc/{}/fd/{}", self.about.pid, descriptor.fd);
        let open = || -> io::Result<File> {
            let file = File::open(&path)?;
            if file.metadata()?.ino() == descriptor.inode {
                Ok(file)
            } else {
                Err(io::Error::other(
                    "it is not the namespace that it was; the pod is gone",
                ))
            }
        };
        open().map_err(io_error(format!("open the namespace {path}")))
    }

    async fn order(&self, request: Request) -> Result<(), ClusterError> {
        // As long as the slowest order may take: a clean-up, or a stop that waits for SIGTERM to work.
        let limit = LIMITS.control + LIMITS.agent_cleanup + LIMITS.agent_stop;
        match call(&self.dir, &request, limit).await {
            Ok(Reply::Done) => Ok(()),
            Ok(_) => Err(cluster_error("give an order to the lab")(unexpected(&self.dir))),
            Err(error) => Err(cluster_error("give an order to the lab")(error)),
        }
    }
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
        BTreeSet::from([
            Capability::HostNetwork,
            Capability::Baseline,
            Capability::CgroupAbove,
            Capability::CgroupNamespaces,
            Capability::RawSockets,
            Capability::SecondNetwork,
        ])
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
}

#[async_trait]
impl OutsideClient for LabAccess {
    async fn command(&self, argv: &[String]) -> Result<Placed, ClusterError> {
        self.placed(&Place::Outside, argv).await
    }
}

#[async_trait]
impl AgentControl for LabAccess {
    fn capabilities(&self) -> BTreeSet<Capability> {
        BTreeSet::from([
            Capability::Node,
            Capability::AgentCleanup,
            Capability::PodsWithoutAgents,
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

    async fn clean_up(&self, node: &str) -> Result<(), ClusterError> {
        let node = node.to_owned();
        self.order(Request::CleanUpAgent { node }).await
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
        let stream = stream.map_err(cluster_error(format!("let it happen that {fault}")))?;
        FaultLease::begun(stream, FAULT).await
    }

    async fn jump_versions(&self, by: u32) -> Result<(), ClusterError> {
        self.order(Request::JumpVersions { by }).await
    }
}
