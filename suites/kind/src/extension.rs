//! What a cluster of kind has beside its API: nodes that are containers of this host, and its agents.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use cluster::{
    AgentState, ApiEndpoint, ApiFault, ApiServer, Capability, ClusterError, EVERY_PIN, HeldApiFault, Place,
    Stop, Variant, command_line,
    spawn::{Placement, program},
    target::program::Values,
};
use existing::Extension;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use lab::{NetNs, api_is_ready, counters};
use tokio::time::{sleep, timeout};

use super::{
    KindError, LIMITS, PROGRAMS, agents,
    agents::Agents,
    api::{self, ApiServers},
    baseline::Baseline,
    containers::Container,
    error::io_error,
    placing::{self, on_node},
    state::Folder,
};

/// So many answers in a row show that nobody asks one that is stopped any more.
const ANSWERS: u32 = 5;

/// The nodes, the agents, and the client outside.
#[derive(Debug)]
pub(super) struct KindExtension {
    pub(super) nodes: Vec<Container>,
    pub(super) agents: Agents,
    pub(super) client: DebugClient,
    pub(super) api: ApiServers,
    /// Whether policies can keep API servers from something: Kubernetes 1.30 or later.
    pub(super) knows_policies: bool,
    pub(super) folder: Folder,
    /// Whether pods have a network that is not the agents'.
    pub(super) pods_without_agents: bool,
    /// First process of the outside client's container.
    pub(super) outside: u32,
    /// What nodes had before their agents were installed, if somebody has looked.
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

impl KindExtension {
    fn node(&self, name: &str) -> Result<&Container, ClusterError> {
        let found = self.nodes.iter().find(|node| node.name == name);
        found.ok_or_else(|| ClusterError::NotFound {
            what: "node",
            name: name.to_owned(),
        })
    }

    /// Where a container of a pod is.
    async fn pod(&self, namespace: &str, name: &str) -> Result<Placement, ClusterError> {
        let what = format!("find the pod {namespace}/{name}");
        let gone = || ClusterError::NotFound {
            what: "running pod",
            name: format!("{namespace}/{name}"),
        };
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
        let node = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.node_name.as_deref())
            .ok_or_else(gone)?;
        let node = self.node(node)?;
        let id = agents::container_id(&pod).ok_or_else(gone)?;
        placing::in_container(node, id)
            .map_err(told(&what))?
            .ok_or_else(gone)
    }

    /// Connections of the administrator end with the API server that is stopped, a moment after it, and when answers go wrong: waits until the others
    /// have answered several times in a row, where there are others, and not for long.
    async fn is_answered_again(&self) {
        let (begin, mut answers) = (Instant::now(), 0);
        while answers < ANSWERS && begin.elapsed() < LIMITS.request {
            if !self.api.list().iter().any(|server| server.running) {
                return;
            }
            let asked = timeout(LIMITS.request, api_is_ready(&self.client.0)).await;
            answers = if asked.unwrap_or(false) { answers + 1 } else { 0 };
            sleep(LIMITS.look).await;
        }
    }

    /// Removes what the target keeps on a node, by its own documented way.
    async fn wipe(&self, node: &Container) -> Result<(), KindError> {
        let program = self.agents.program();
        let what = format!("clean up after the agent of {}", node.name);
        let state = Path::new("/run/plumbline");
        let values = Values {
            kubeconfig: Path::new("/etc/kubernetes/kubelet.conf"),
            node: &node.name,
            cgroup: &node.cgroup_root.to_string_lossy(),
            bpffs: &node.bpffs.to_string_lossy(),
            state,
        };
        let words = values.fill(&program.cleanup);
        on_node(node, &agents::place(program), &words, &what, LIMITS.agent_cleanup)
            .await
            .map(drop)
    }
}

/// For `map_err`: what was tried, as a case sees it.
fn told(what: &str) -> impl FnOnce(KindError) -> ClusterError {
    move |error| ClusterError::Failed {
        what: what.to_owned(),
        why: error.to_string(),
    }
}

#[async_trait]
impl Extension for KindExtension {
    fn capabilities(&self) -> BTreeSet<Capability> {
        let mut all = BTreeSet::from([
            Capability::Node,
            Capability::Outside,
            Capability::HostNetwork,
            Capability::LoadBalancerAddresses,
            Capability::ApiServers,
            Capability::AgentCleanup,
            Capability::CgroupNamespaces,
            Capability::RawSockets,
        ]);
        all.extend(self.baseline.iter().map(|_| Capability::Baseline));
        if self.api.are_several() {
            all.extend([
                Capability::ApiFaults,
                Capability::SharedAddress,
                Capability::WrongAnswers,
            ]);
        }
        if self.knows_policies {
            all.insert(Capability::Unreconciled);
        }
        if self.pods_without_agents {
            all.insert(Capability::PodsWithoutAgents);
        }
        all
    }

    async fn command(
        &self,
        place: &Place,
        argv: &[String],
    ) -> Result<Option<(Command, Placement)>, ClusterError> {
        let what = format!("start `{}` {place}", command_line(argv));
        let here = self.plumbline.as_path();
        let there = Path::new(PROGRAMS).join("plumbline");
        let (plumbline, placement) = match place {
            Place::Pod { namespace, name } => (here, self.pod(namespace, name).await?),
            Place::Host { node } => (
                there.as_path(),
                placing::of_node(self.node(node)?).map_err(told(&what))?,
            ),
            Place::Outside => (here, placing::beside(self.outside).map_err(told(&what))?),
        };
        let command = program(plumbline, argv).map_err(|error| ClusterError::Failed {
            what,
            why: error.to_string(),
        })?;
        Ok(Some((command, placement)))
    }

    async fn intact(&self) -> Result<(), ClusterError> {
        match self.nodes.iter().find(|node| !node.cgroup.exists()) {
            None => Ok(()),
            Some(gone) => Err(ClusterError::NotFound {
                what: "running node",
                name: gone.name.clone(),
            }),
        }
    }

    fn cgroup_root(&self) -> &Path {
        let first = self.nodes.first();
        first.map_or(Path::new("/sys/fs/cgroup"), |node| node.cgroup_root.as_path())
    }

    /// Each node has a bpffs of its own.
    fn pins(&self) -> Vec<String> {
        vec![EVERY_PIN.to_owned()]
    }

    /// What the agents say, and what the nodes' networks have counted.
    async fn evidence(&self, folder: &Path) -> Result<(), ClusterError> {
        for node in &self.nodes {
            let said = self.agents.log(&self.client.0, &node.name).await;
            let network = node.namespace("net").map(NetNs::of);
            let counted = network.and_then(|network| counters(&network).map_err(io_error("read counters")));
            for (kind, text) in [
                ("agent", said.map_err(|error| error.to_string())),
                ("network", counted.map_err(|error| error.to_string())),
            ] {
                let extension = if kind == "agent" { "log" } else { "txt" };
                let path = folder.join(format!("{kind}-{}.{extension}", node.name));
                let text = text.unwrap_or_else(|error| format!("{error}\n"));
                fs::write(&path, text).map_err(|error| ClusterError::Failed {
                    what: format!("write {}", path.display()),
                    why: error.to_string(),
                })?;
            }
        }
        Ok(())
    }

    async fn agent(&self, node: &str) -> Result<AgentState, ClusterError> {
        let found = self.node(node)?;
        let state = self.agents.state(&self.client.0, found).await;
        let mut state = state.map_err(told(&format!("ask for the agent of {node}")))?;
        state.pid = state.pid.and_then(|pid| placing::as_on_node(found, pid));
        Ok(state)
    }

    async fn baseline(&self, node: &str) -> Result<BTreeMap<String, usize>, ClusterError> {
        let all = self.baseline.as_ref().ok_or(ClusterError::Unsupported {
            what: "tell what nodes had before their agents",
        })?;
        let found = all.get(node).cloned();
        found.ok_or_else(|| ClusterError::NotFound {
            what: "node",
            name: node.to_owned(),
        })
    }

    async fn stop_agent(&self, node: &str, how: Stop) -> Result<(), ClusterError> {
        let done = self.agents.stop(&self.client.0, self.node(node)?, how).await;
        done.map_err(told(&format!("stop the agent of {node}")))
    }

    async fn start_agent(&self, node: &str, variant: Option<Variant>) -> Result<(), ClusterError> {
        let done = self.agents.start(&self.client.0, self.node(node)?, variant).await;
        done.map_err(told(&format!("start the agent of {node}")))
    }

    async fn set_agent_api_endpoint(
        &self,
        node: &str,
        way: Option<&ApiEndpoint>,
    ) -> Result<(), ClusterError> {
        let found = self.node(node)?;
        let documented = &self.agents.program().api;
        let further = way.is_some_and(|way| !way.further.is_empty());
        if way.is_some() && (!self.agents.can_be_led() || further && documented.further.is_none()) {
            return Err(ClusterError::Unsupported {
                what: "lead its agents to the API in that way",
            });
        }
        let done = self.agents.lead(&self.client.0, found, way).await;
        done.map_err(told(&format!("lead the agent of {node} to the API")))
    }

    fn api_servers(&self) -> Option<Vec<ApiServer>> {
        Some(self.api.list())
    }

    async fn api_fault(&self, fault: &ApiFault, lasts: Duration) -> Result<HeldApiFault, ClusterError> {
        let held = api::begin(&self.plumbline, &self.folder, fault, lasts).await?;
        // The balancer cuts connections when requests begin to pass through proxies.
        if matches!(fault, ApiFault::Down { .. } | ApiFault::Answers { .. }) {
            self.is_answered_again().await;
        }
        Ok(held)
    }

    async fn wipe_state(&self, node: &str) -> Result<(), ClusterError> {
        let found = self.node(node)?;
        let what = format!("wipe what the agent of {node} keeps");
        let state = self.agent(node).await?;
        if state.pid.is_some() {
            return Err(ClusterError::Failed {
                what,
                why: "it runs; stop it first".to_owned(),
            });
        }
        self.wipe(found).await.map_err(told(&what))
    }
}

/// Puts programs on a node, for processes that are no pod's.
pub(super) fn install(node: &Container, program: &Path, name: &str) -> Result<(), KindError> {
    let folder = node.path(Path::new(PROGRAMS));
    let file = folder.join(name);
    let failed = || io_error(format!("put {name} on the node {}", node.name));
    fs::create_dir_all(&folder).map_err(failed())?;
    // One that runs can't be written; it can be replaced.
    let new = folder.join(format!("{name}.new"));
    fs::copy(program, &new).map_err(failed())?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).map_err(failed())?;
    fs::rename(&new, &file).map_err(failed())
}
