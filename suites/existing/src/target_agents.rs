//! The installed agents of a target, as its target file describes them. They are observed; under [`Tier::Node`] they
//! are stopped and started, too.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use cluster::{
    AgentControl, AgentState, ApiEndpoint, Capability, ClusterError, Node, RUN_LABEL, Stop, Variant,
    target::Agent,
};
use k8s_openapi::api::core::v1::{ContainerStatus, Node as ApiNode, Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{AttachParams, ListParams, LogParams},
};
use tokio::{io::AsyncReadExt as _, time::timeout};

use super::{
    Agents, KubernetesError, LIMITS, Options, Tier,
    agents::AgentController,
    error::{api, words},
    limits::ask,
    pods::{on, running, status},
};

/// The agents of a cluster, if the target describes their pods.
pub(super) fn agents(client: &Client, options: &Options) -> Option<Arc<dyn AgentControl>> {
    let agents = options.tested.agents.as_ref()?;
    Some(Arc::new(Installed {
        client: client.clone(),
        agents: agents.clone(),
        options: options.clone(),
        observed: Mutex::default(),
    }))
}

/// The installed agents.
struct Installed {
    client: Client,
    agents: Agents,
    options: Options,
    observed: Mutex<BTreeMap<String, AgentObservation>>,
}

/// Observations of one agent so far.
#[derive(Debug, Default)]
struct AgentObservation {
    /// The last run: its pod, and the restarts of its container.
    run: (String, i32),
    starts: u32,
    /// Its container and process on the node.
    process: Option<(String, u32)>,
}

impl fmt::Debug for Installed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Installed");
        debug.field("agents", &self.agents).finish_non_exhaustive()
    }
}

/// Looks for an agent on each node.
///
/// # Errors
/// [`KubernetesError::NoAgent`]: the target is not installed.
pub(super) async fn check(client: &Client, agents: &Agents, nodes: &[Node]) -> Result<(), KubernetesError> {
    let Agent {
        namespace, container, ..
    } = &agents.agent;
    let what = format!("list the agents in {namespace}");
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = ListParams::default().labels(&agents.agent.selector());
    let listed = ask(&what, pods.list(&params)).await?.map_err(api(&what))?;
    let is_on = |node: &Node| {
        listed
            .iter()
            .any(|pod| on(pod, &node.name) && status(pod, container).is_some())
    };
    // The agent of a node that an earlier run keeps stopped returns when this run holds the cluster.
    let what = "list nodes whose agent a run has stopped";
    let all: Api<ApiNode> = Api::all(client.clone());
    let stopped = ask(what, all.list(&ListParams::default().labels(RUN_LABEL))).await?;
    let stopped = stopped.map_err(api(what))?.items;
    let is_kept_off = |node: &Node| stopped.iter().any(|stopped| stopped.name_any() == node.name);
    match nodes.iter().find(|node| !is_on(node) && !is_kept_off(node)) {
        None => Ok(()),
        Some(node) => Err(KubernetesError::NoAgent {
            node: node.name.clone(),
            namespace: namespace.clone(),
            selector: agents.agent.selector(),
            container: container.clone(),
        }),
    }
}

/// For `map_err`: the operation, as a case names it.
fn cluster_error(what: &str) -> impl FnOnce(KubernetesError) -> ClusterError {
    move |error| ClusterError::Failed {
        what: what.to_owned(),
        why: error.to_string(),
    }
}

impl Installed {
    fn controller(&self) -> AgentController<'_> {
        AgentController {
            client: &self.client,
            agents: &self.agents,
            options: &self.options,
        }
    }

    fn touches(&self) -> bool {
        self.options.tier >= Tier::Node
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.agents.agent.namespace)
    }

    async fn list(&self) -> Result<Vec<Pod>, ClusterError> {
        self.controller()
            .pods()
            .await
            .map_err(cluster_error("list the agents"))
    }

    /// Process id of an agent on its node, read once for each container.
    async fn process(
        &self,
        node: &str,
        status: Option<&ContainerStatus>,
    ) -> Result<Option<u32>, ClusterError> {
        let Some(id) = status.and_then(running).filter(|_| self.touches()) else {
            return Ok(None);
        };
        let known = |observed: &AgentObservation| observed.process.clone().filter(|(of, _)| of == id);
        if let Some((_, process)) = self.lock().get(node).and_then(known) {
            return Ok(Some(process));
        }
        let process = self.controller().process(node, id, None).await;
        let process = process.map_err(cluster_error(&format!("find the agent of {node}")))?;
        let mut observed = self.lock();
        observed.entry(node.to_owned()).or_default().process =
            process.map(|process| (id.to_owned(), process));
        Ok(process)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, AgentObservation>> {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of starts, as far as observed.
    fn starts(&self, node: &str, run: Option<(String, i32)>) -> u32 {
        let mut observed = self.lock();
        let observed = observed.entry(node.to_owned()).or_default();
        if let Some(run) = run.filter(|run| *run != observed.run) {
            observed.run = run;
            observed.starts += 1;
        }
        observed.starts
    }

    /// Saves the end of the agent's log, and what it has programmed.
    async fn keep(&self, pod: &Pod, folder: &Path) -> Result<(), String> {
        let Agents { agent, dump, .. } = &self.agents;
        let name = pod.name_any();
        let late = |_| format!("no answer within {:?}", LIMITS.request);
        let params = LogParams {
            container: Some(agent.container.clone()),
            tail_lines: Some(LIMITS.log_lines),
            ..LogParams::default()
        };
        let pods = self.pods();
        let log = timeout(LIMITS.request, pods.logs(&name, &params))
            .await
            .map_err(late)?;
        let log = log.map_err(|error| words(&error))?;
        fs::write(folder.join(format!("{name}.log")), log).map_err(|error| error.to_string())?;
        let Some(argv) = dump else {
            return Ok(());
        };
        let text = timeout(LIMITS.request, run(&pods, &name, &agent.container, argv))
            .await
            .map_err(late)??;
        fs::write(folder.join(format!("{name}.dump")), text).map_err(|error| error.to_string())
    }
}

/// Stdout of a program in a container, up to a limit.
async fn run(pods: &Api<Pod>, pod: &str, container: &str, argv: &[String]) -> Result<Vec<u8>, String> {
    let params = AttachParams::default()
        .container(container)
        .stdin(false)
        .stdout(true)
        .stderr(false);
    let mut process = pods
        .exec(pod, argv, &params)
        .await
        .map_err(|error| words(&error))?;
    let mut text = Vec::new();
    if let Some(out) = process.stdout() {
        let mut out = out.take(LIMITS.dump_bytes);
        out.read_to_end(&mut text)
            .await
            .map_err(|error| error.to_string())?;
    }
    Ok(text)
}

#[async_trait]
impl AgentControl for Installed {
    fn capabilities(&self) -> BTreeSet<Capability> {
        let mut all: BTreeSet<_> = self.touches().then_some(Capability::Node).into_iter().collect();
        if self.touches() && self.agents.clean.is_some() {
            all.insert(Capability::AgentCleanup);
        }
        if !self.agents.pod_network {
            all.insert(Capability::PodsWithoutAgents);
        }
        all
    }

    fn pins(&self) -> Vec<String> {
        self.agents.pins.clone()
    }

    /// The process is visible under [`Tier::Node`] only.
    async fn state(&self, node: &str) -> Result<AgentState, ClusterError> {
        let pods = self.list().await?;
        let pod = pods.iter().find(|pod| on(pod, node));
        let status = pod.and_then(|pod| status(pod, &self.agents.agent.container));
        let run = pod
            .zip(status)
            .map(|(pod, status)| (pod.uid().unwrap_or_default(), status.restart_count));
        Ok(AgentState {
            pid: self.process(node, status).await?,
            starts: self.starts(node, run),
            ready: status.map(|status| status.ready),
            last_exit: status.and_then(last_exit),
            way: None,
            variant: None,
        })
    }

    async fn stop(&self, node: &str, how: Stop) -> Result<(), ClusterError> {
        let done = self.controller().stop(node, how).await;
        done.map_err(cluster_error(&format!("stop the agent of {node}")))
    }

    async fn start(&self, node: &str, variant: Option<Variant>) -> Result<(), ClusterError> {
        if variant.is_some() {
            return Err(ClusterError::unsupported(
                "start its agents in another configuration",
            ));
        }
        let started = async {
            let controller = self.controller();
            controller.start(node).await?;
            controller.runs(node).await
        };
        started
            .await
            .map_err(cluster_error(&format!("start the agent of {node}")))
    }

    async fn set_api_endpoint(&self, _: &str, _: Option<&ApiEndpoint>) -> Result<(), ClusterError> {
        Err(ClusterError::unsupported(
            "set another API endpoint for its agents",
        ))
    }

    async fn clean_up(&self, node: &str) -> Result<(), ClusterError> {
        let done = self.controller().clean(node).await;
        done.map_err(cluster_error(&format!("clean up after the agent of {node}")))
    }

    async fn evidence(&self, folder: &Path) -> Result<(), ClusterError> {
        let mut failed = Vec::new();
        for pod in self.list().await? {
            if let Err(why) = self.keep(&pod, folder).await {
                failed.push(format!("{}: {why}", pod.name_any()));
            }
        }
        if failed.is_empty() {
            return Ok(());
        }
        Err(ClusterError::Failed {
            what: "keep what the agents say".to_owned(),
            why: failed.join("; "),
        })
    }
}

/// How the container ended last, as text.
fn last_exit(status: &ContainerStatus) -> Option<String> {
    let ended = status.last_state.as_ref()?.terminated.as_ref()?;
    Some(format!("exit code {}", ended.exit_code))
}
