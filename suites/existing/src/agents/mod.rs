//! The agents of a target, as its target file describes their DaemonSet and pods. They are observed; where their
//! processes can be reached, they are stopped and started, too.
//!
//! A stopped agent's node has a label of the run, which the DaemonSet avoids by an affinity ([`daemon_set`]). An agent
//! in a variant, or with another API endpoint, is a custom pod on such a node ([`custom`]). The objects themselves say
//! what a run has changed, so that every later process can undo it ([`give_back`]).
//!
//! Files: this one; `daemon_set` (borrowed and restored); `custom` (variants and redirected agents); `clean_up`;
//! `processes` (on nodes).

mod clean_up;
mod custom;
mod daemon_set;
mod processes;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use cluster::{
    AgentControl, AgentState, ApiEndpoint, Capability, ClusterError, Node, RUN_LABEL, Stop, Variant,
    command_line, target::Agent,
};
use k8s_openapi::api::core::v1::{ContainerStatus, Node as ApiNode, Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{AttachParams, ListParams, LogParams},
};
use nix::sys::signal::Signal;
use tokio::{
    io::AsyncReadExt as _,
    time::{Instant, sleep, timeout},
};

use super::{
    Agents, KubernetesError, LIMITS, Options, Tier,
    error::{api, words},
    limits::{ask, ask_again},
    pods::{on, running, status},
};

use self::custom::CustomPods;
pub use self::{custom::CustomAgents, daemon_set::give_back, processes::Processes};

/// The agents of a cluster, if the target describes their pods; under [`Tier::Node`], with their processes.
pub(super) fn agents(client: &Client, options: &Options) -> Option<Arc<dyn AgentControl>> {
    let agents = options.tested.agents.clone()?;
    let processes = (options.tier >= Tier::Node).then(|| {
        let processes = processes::PodProcesses::new(client.clone(), options.clone());
        Arc::new(processes) as Arc<dyn Processes>
    });
    let run = options.run.clone();
    Some(Arc::new(InstalledAgents::new(
        client.clone(),
        agents,
        run,
        processes,
    )))
}

/// The installed agents of a target.
pub struct InstalledAgents {
    client: Client,
    agents: Agents,
    /// Name of the run, for labels.
    run: String,
    /// `None`: agents are only observed.
    processes: Option<Arc<dyn Processes>>,
    /// `None`: agents have no other configuration than their DaemonSet's.
    custom: Option<CustomPods>,
    observed: Mutex<BTreeMap<String, AgentObservation>>,
}

/// Observations of one agent so far. Its pods are replaced at each start.
#[derive(Debug, Default)]
struct AgentObservation {
    /// Starts of its container in each pod, by the pod's uid.
    starts: BTreeMap<String, u32>,
    /// How it was stopped last.
    stopped: Option<Stop>,
}

/// [`Client`] has no `Debug`.
impl fmt::Debug for InstalledAgents {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("InstalledAgents");
        debug.field("agents", &self.agents).finish_non_exhaustive()
    }
}

/// Looks for the agents that the target describes, if it does: one on each node, and under [`Tier::Node`] their
/// DaemonSet.
///
/// # Errors
/// [`KubernetesError::NoAgent`]: the target is not installed; [`KubernetesError::NoDaemonSet`].
pub(super) async fn check(client: &Client, options: &Options, nodes: &[Node]) -> Result<(), KubernetesError> {
    let Some(agents) = &options.tested.agents else {
        return Ok(());
    };
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
        None if options.tier >= Tier::Node => daemon_set::expect(client, &agents.agent).await,
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

impl InstalledAgents {
    /// Agents that the run of this name uses. Without processes, they are only observed.
    #[must_use]
    pub fn new(client: Client, agents: Agents, run: String, processes: Option<Arc<dyn Processes>>) -> Self {
        Self {
            client,
            agents,
            run,
            processes,
            custom: None,
            observed: Mutex::default(),
        }
    }

    /// The same agents, which can be started in other configurations, too.
    #[must_use]
    pub fn with_custom(mut self, settings: CustomAgents) -> Self {
        let (client, agent, run) = (self.client.clone(), self.agents.agent.clone(), self.run.clone());
        self.custom = Some(CustomPods::new(client, agent, run, settings));
        self
    }

    /// What keeps the agents of these nodes from being ready, as text; empty if they are, and the rollout of their
    /// DaemonSet is complete.
    ///
    /// # Errors
    /// The API refuses it, or does not answer.
    pub async fn unready(&self, nodes: &[String]) -> Result<Vec<String>, KubernetesError> {
        let container = &self.agents.agent.container;
        let mut why = Vec::new();
        for node in nodes {
            let pods = self.pods(node).await?;
            let current = pods.iter().find(|pod| on(pod, node));
            if self.is_ready(node, current).await != Some(true) {
                let reason =
                    current.map_or_else(|| "has no pod".to_owned(), |pod| unready_reason(pod, container));
                why.push(format!("{node}: {reason}"));
            }
        }
        let rollout = daemon_set::rollout(&self.client, &self.agents.agent).await?;
        why.extend(rollout.map(|unfinished| format!("their DaemonSet: {unfinished}")));
        Ok(why)
    }

    fn api(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.agents.agent.namespace)
    }

    /// The agents' pods, including those that are terminating.
    async fn all(&self) -> Result<Vec<Pod>, KubernetesError> {
        let what = "list the agents";
        let agent = &self.agents.agent;
        let selector = match self.custom {
            Some(_) => custom::selector(agent),
            None => agent.selector(),
        };
        let (pods, params) = (self.api(), ListParams::default().labels(&selector));
        let listed = ask_again(what, || pods.list(&params)).await?;
        Ok(listed.map_err(api(what))?.items)
    }

    /// Those of a node.
    async fn pods(&self, node: &str) -> Result<Vec<Pod>, KubernetesError> {
        let mut pods = self.all().await?;
        pods.retain(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node));
        Ok(pods)
    }

    fn status<'a>(&self, pod: Option<&'a Pod>) -> Option<&'a ContainerStatus> {
        status(pod?, &self.agents.agent.container)
    }

    fn processes(&self) -> Result<&dyn Processes, KubernetesError> {
        let processes = self.processes.as_deref();
        processes.ok_or_else(|| KubernetesError::Api {
            what: "reach the processes of agents".to_owned(),
            why: "this run leaves nodes alone; choose --tier node".to_owned(),
        })
    }

    async fn is_ready(&self, node: &str, pod: Option<&Pod>) -> Option<bool> {
        let status = self.status(pod)?;
        match &self.processes {
            Some(processes) => processes.is_ready(node, status).await,
            None => Some(status.ready),
        }
    }

    async fn read(&self, node: &str) -> Result<AgentState, KubernetesError> {
        let pods = self.pods(node).await?;
        let (starts, stopped) = self.observe(node, &pods);
        let pod = pods.iter().find(|pod| on(pod, node));
        let status = self.status(pod);
        let pid = match (&self.processes, status.and_then(running)) {
            (Some(processes), Some(container)) => processes.first(node, container, None).await?,
            _ => None,
        };
        Ok(AgentState {
            pid,
            starts,
            ready: self.is_ready(node, pod).await,
            last_exit: status.and_then(last_exit).or(stopped),
            way: self.endpoint(node).await?,
            variant: pod.and_then(custom::variant),
        })
    }

    async fn endpoint(&self, node: &str) -> Result<Option<ApiEndpoint>, KubernetesError> {
        match &self.custom {
            Some(custom) => custom.endpoint(node).await,
            None => Ok(None),
        }
    }

    fn observed(&self) -> MutexGuard<'_, BTreeMap<String, AgentObservation>> {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the pods of a node; returns the number of starts as far as observed, and how the agent was stopped last.
    fn observe(&self, node: &str, pods: &[Pod]) -> (u32, Option<String>) {
        let mut observed = self.observed();
        let observed = observed.entry(node.to_owned()).or_default();
        for pod in pods {
            let starts = self.status(Some(pod)).map_or(0, starts);
            observed.starts.insert(pod.uid().unwrap_or_default(), starts);
        }
        let stopped = observed.stopped.map(|how| match how {
            Stop::Term => "ended by SIGTERM".to_owned(),
            Stop::Kill => "ended by SIGKILL".to_owned(),
        });
        (observed.starts.values().sum(), stopped)
    }

    /// Stops the agent of a node until it is started again; returns when none of its pods is left.
    async fn stop_agent(&self, node: &str, how: Stop) -> Result<(), KubernetesError> {
        let processes = self.processes()?;
        daemon_set::borrow(&self.client, &self.agents.agent, &self.run).await?;
        let pods = self.pods(node).await?;
        self.observe(node, &pods);
        let current = pods.iter().filter(|pod| how == Stop::Kill && on(pod, node));
        let killed = current.filter_map(|pod| running(self.status(Some(pod))?));
        let killed: Vec<&str> = killed.collect();
        // A stopped process does not handle the kubelet's SIGTERM, and the container is not restarted before its pod
        // is deleted.
        for container in &killed {
            processes.first(node, container, Some(Signal::SIGSTOP)).await?;
        }
        let kept_off = self.keep_off(node).await;
        for container in &killed {
            processes.first(node, container, Some(Signal::SIGKILL)).await?;
        }
        kept_off?;
        self.until(node, "is gone", <[Pod]>::is_empty).await?;
        if !pods.is_empty() {
            self.observed().entry(node.to_owned()).or_default().stopped = Some(how);
        }
        Ok(())
    }

    /// Returns when the pods of a node are terminating.
    async fn keep_off(&self, node: &str) -> Result<(), KubernetesError> {
        daemon_set::label(&self.client, node, Some(&self.run)).await?;
        if let Some(custom) = &self.custom {
            custom.remove(node).await?;
        }
        self.until(node, "is to go", |pods| !pods.iter().any(|pod| on(pod, node)))
            .await
    }

    /// Starts the agent of a node, and waits until it runs.
    async fn start_agent(&self, node: &str, variant: Option<Variant>) -> Result<(), KubernetesError> {
        let pods = self.pods(node).await?;
        let endpoint = self.endpoint(node).await?;
        match &self.custom {
            Some(custom) if variant.is_some() || endpoint.is_some() => {
                let is_wanted =
                    |pod: &Pod| on(pod, node) && custom::is_custom(pod) && custom::variant(pod) == variant;
                if !pods.iter().any(is_wanted) {
                    self.stop_agent(node, Stop::Term).await?;
                    custom.make(node, variant, endpoint.as_ref()).await?;
                }
            }
            _ => {
                if pods.iter().any(custom::is_custom) {
                    self.stop_agent(node, Stop::Term).await?;
                }
                daemon_set::label(&self.client, node, None).await?;
            }
        }
        let runs = |pod: &Pod| on(pod, node) && self.status(Some(pod)).and_then(running).is_some();
        self.until(node, "runs", |pods| pods.iter().any(runs)).await
    }

    async fn expect_stopped(&self, node: &str, what: &str) -> Result<(), ClusterError> {
        let pods = self.pods(node).await.map_err(cluster_error(what))?;
        if pods.is_empty() {
            return Ok(());
        }
        Err(ClusterError::failed(what, "it runs; stop it first"))
    }

    async fn until(
        &self,
        node: &str,
        what: &str,
        holds: impl Fn(&[Pod]) -> bool,
    ) -> Result<(), KubernetesError> {
        let began = Instant::now();
        while !holds(&self.pods(node).await?) {
            if began.elapsed() >= LIMITS.agents {
                return Err(KubernetesError::Late {
                    what: format!("see that the agent of {node} {what}"),
                    limit: LIMITS.agents,
                });
            }
            sleep(LIMITS.look).await;
        }
        Ok(())
    }

    /// Saves the end of the agent's log, and what it has programmed.
    async fn keep(&self, pod: &Pod, folder: &Path) -> Result<(), String> {
        let agent = &self.agents.agent;
        let name = pod.name_any();
        let late = |_| format!("no answer within {:?}", LIMITS.request);
        let params = LogParams {
            container: Some(agent.container.clone()),
            tail_lines: Some(LIMITS.log_lines),
            ..LogParams::default()
        };
        let pods = self.api();
        let log = timeout(LIMITS.request, pods.logs(&name, &params))
            .await
            .map_err(late)?;
        let log = log.map_err(|error| words(&error))?;
        fs::write(folder.join(format!("{name}.log")), log).map_err(|error| error.to_string())?;
        let Some(argv) = &self.agents.dump else {
            return Ok(());
        };
        let text = self.printed(&name, argv, false).await?;
        fs::write(folder.join(format!("{name}.dump")), text).map_err(|error| error.to_string())
    }

    /// What a command of the target prints in the agent's container in a pod; `compares` as in [`run`].
    async fn printed(&self, pod: &str, argv: &[String], compares: bool) -> Result<Vec<u8>, String> {
        let (pods, container) = (self.api(), &self.agents.agent.container);
        let printed = timeout(LIMITS.request, run(&pods, pod, container, argv, compares)).await;
        printed.map_err(|_| format!("no answer within {:?}", LIMITS.request))?
    }

    /// The same, in the pod of a node; `None`: the target has no such command.
    async fn printed_on(
        &self,
        node: &str,
        argv: Option<&Vec<String>>,
        compares: bool,
        what: &str,
    ) -> Result<Option<String>, ClusterError> {
        let Some(argv) = argv else { return Ok(None) };
        let pods = self.pods(node).await.map_err(cluster_error(what))?;
        let pod = pods
            .first()
            .ok_or_else(|| ClusterError::failed(what, "it has no pod"))?;
        let printed = self.printed(&pod.name_any(), argv, compares).await;
        let printed = printed.map_err(|why| ClusterError::failed(what, why))?;
        Ok(Some(String::from_utf8_lossy(&printed).into_owned()))
    }
}

/// Stdout of a program in a container that succeeds, up to a limit, at which its end is not waited for. One that `compares` may
/// also end with 1, if it has printed something.
async fn run(
    pods: &Api<Pod>,
    pod: &str,
    container: &str,
    argv: &[String],
    compares: bool,
) -> Result<Vec<u8>, String> {
    let params = AttachParams::default()
        .container(container)
        .stdin(false)
        .stdout(true)
        .stderr(false);
    let mut process = pods
        .exec(pod, argv, &params)
        .await
        .map_err(|error| words(&error))?;
    let status = process.take_status();
    let mut text = Vec::new();
    if let Some(out) = process.stdout() {
        let mut out = out.take(LIMITS.dump_bytes);
        out.read_to_end(&mut text)
            .await
            .map_err(|error| error.to_string())?;
    }
    if u64::try_from(text.len()).is_ok_and(|length| length >= LIMITS.dump_bytes) {
        return Ok(text);
    }
    let ended = match status {
        Some(status) => status.await,
        None => None,
    };
    let ended = ended.ok_or("its end is not known")?;
    let causes = ended
        .details
        .and_then(|details| details.causes)
        .unwrap_or_default();
    let is_one = || causes.iter().any(|cause| cause.message.as_deref() == Some("1"));
    let differs = compares && !text.is_empty() && is_one();
    if ended.status.as_deref() == Some("Success") || differs {
        return Ok(text);
    }
    Err(format!(
        "`{}`: {}",
        command_line(argv),
        ended.message.unwrap_or_default()
    ))
}

#[async_trait]
impl AgentControl for InstalledAgents {
    fn capabilities(&self) -> BTreeSet<Capability> {
        let mut all = BTreeSet::new();
        if self.processes.is_some() {
            all.insert(Capability::Node);
            all.extend(self.agents.clean.iter().map(|_| Capability::AgentCleanup));
        }
        if !self.agents.pod_network {
            all.insert(Capability::PodsWithoutAgents);
        }
        all
    }

    fn pins(&self) -> Vec<String> {
        self.agents.pins.clone()
    }

    /// The process is known only where processes can be reached.
    async fn state(&self, node: &str) -> Result<AgentState, ClusterError> {
        let state = self.read(node).await;
        state.map_err(cluster_error(&format!("read the state of the agent of {node}")))
    }

    async fn stop(&self, node: &str, how: Stop) -> Result<(), ClusterError> {
        let done = self.stop_agent(node, how).await;
        done.map_err(cluster_error(&format!("stop the agent of {node}")))
    }

    async fn start(&self, node: &str, variant: Option<Variant>) -> Result<(), ClusterError> {
        if variant.is_some() && self.custom.is_none() {
            return Err(ClusterError::unsupported(
                "start its agents in another configuration",
            ));
        }
        let done = self.start_agent(node, variant).await;
        done.map_err(cluster_error(&format!("start the agent of {node}")))
    }

    async fn set_api_endpoint(&self, node: &str, endpoint: Option<&ApiEndpoint>) -> Result<(), ClusterError> {
        let custom = self.custom.as_ref().filter(|custom| custom.supports(endpoint));
        let custom =
            custom.ok_or_else(|| ClusterError::unsupported("set another API endpoint for its agents"))?;
        let what = format!("set the API endpoint of the agent of {node}");
        self.expect_stopped(node, &what).await?;
        let done = custom.set_endpoint(node, endpoint).await;
        done.map_err(cluster_error(&what))
    }

    async fn clean_up(&self, node: &str) -> Result<(), ClusterError> {
        let what = format!("clean up after the agent of {node}");
        self.expect_stopped(node, &what).await?;
        let done = clean_up::clean_up(&self.client, &self.agents, &self.run, node).await;
        done.map_err(cluster_error(&what))
    }

    async fn dump(&self, node: &str) -> Result<Option<String>, ClusterError> {
        let what = format!("read what the agent of {node} has programmed");
        self.printed_on(node, self.agents.dump.as_ref(), false, &what)
            .await
    }

    async fn differences(&self, node: &str) -> Result<Option<String>, ClusterError> {
        let what = format!("compare what the agent of {node} has programmed with what the API lists");
        self.printed_on(node, self.agents.differences.as_ref(), true, &what)
            .await
    }

    async fn evidence(&self, folder: &Path) -> Result<(), ClusterError> {
        let mut failed = Vec::new();
        for pod in self.all().await.map_err(cluster_error("list the agents"))? {
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

/// Number of starts of a container.
fn starts(status: &ContainerStatus) -> u32 {
    let restarts = u32::try_from(status.restart_count).unwrap_or_default();
    restarts + u32::from(status.container_id.is_some())
}

/// How the container ended last, as text.
fn last_exit(status: &ContainerStatus) -> Option<String> {
    let ended = status.last_state.as_ref()?.terminated.as_ref()?;
    Some(format!("exit code {}", ended.exit_code))
}

/// Why a pod is not ready, from its status.
fn unready_reason(pod: &Pod, container: &str) -> String {
    let status = status(pod, container);
    let waiting = status.and_then(|status| status.state.as_ref()?.waiting.as_ref());
    let why = waiting.map(|waiting| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        format!("{} {}", text(&waiting.reason), text(&waiting.message))
    });
    let phase = || pod.status.as_ref().and_then(|status| status.phase.clone());
    let why = why.or_else(|| status.and_then(last_exit)).or_else(phase);
    format!("{} {}", pod.name_any(), why.unwrap_or_default())
        .trim()
        .to_owned()
}
