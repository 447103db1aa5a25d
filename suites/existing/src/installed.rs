//! What is installed in a cluster, as its target's file says: where its agents are. They are looked at; under [`Tier::Node`] they
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

/// The agents of a cluster, where the target says which pods they are.
pub(super) fn agents(client: &Client, options: &Options) -> Option<Arc<dyn AgentControl>> {
    let agents = options.tested.agents.as_ref()?;
    Some(Arc::new(Installed {
        client: client.clone(),
        agents: agents.clone(),
        options: options.clone(),
        seen: Mutex::default(),
    }))
}

/// Agents that are there.
struct Installed {
    client: Client,
    agents: Agents,
    options: Options,
    seen: Mutex<BTreeMap<String, Seen>>,
}

/// What was seen of one agent so far.
#[derive(Debug, Default)]
struct Seen {
    /// The last run: its pod, and how often that had ended before.
    run: (String, i32),
    starts: u32,
    /// Its process on the node, and the container that this is of.
    process: Option<(String, u32)>,
}

impl fmt::Debug for Installed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Installed");
        debug.field("agents", &self.agents).finish_non_exhaustive()
    }
}

/// Looks for the agents of a target on each node.
///
/// # Errors
/// [`KubernetesError::NoAgent`]: what is installed is something else.
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
    // What an earlier run keeps off its node comes back when this one has the cluster.
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

/// For `map_err`: what was tried, as a case sees it.
fn told(what: &str) -> impl FnOnce(KubernetesError) -> ClusterError {
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
        self.controller().pods().await.map_err(told("list the agents"))
    }

    /// Its process, as the node has it; asked there once for each container.
    async fn process(
        &self,
        node: &str,
        status: Option<&ContainerStatus>,
    ) -> Result<Option<u32>, ClusterError> {
        let Some(id) = status.and_then(running).filter(|_| self.touches()) else {
            return Ok(None);
        };
        let known = |seen: &Seen| seen.process.clone().filter(|(of, _)| of == id);
        if let Some((_, process)) = self.lock().get(node).and_then(known) {
            return Ok(Some(process));
        }
        let process = self.controller().process(node, id, None).await;
        let process = process.map_err(told(&format!("find the agent of {node}")))?;
        let mut seen = self.lock();
        seen.entry(node.to_owned()).or_default().process = process.map(|process| (id.to_owned(), process));
        Ok(process)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often it has been started, as far as was seen.
    fn starts(&self, node: &str, run: Option<(String, i32)>) -> u32 {
        let mut seen = self.lock();
        let seen = seen.entry(node.to_owned()).or_default();
        if let Some(run) = run.filter(|run| *run != seen.run) {
            seen.run = run;
            seen.starts += 1;
        }
        seen.starts
    }

    /// The end of what an agent has said, and what it has programmed.
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

/// What a program in a container writes to its stdout, to its end or to a limit.
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

    /// Its process is seen under [`Tier::Node`] only.
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
        done.map_err(told(&format!("stop the agent of {node}")))
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
        started.await.map_err(told(&format!("start the agent of {node}")))
    }

    async fn set_api_endpoint(&self, _: &str, _: Option<&ApiEndpoint>) -> Result<(), ClusterError> {
        Err(ClusterError::unsupported(
            "tell its agents another way to the API",
        ))
    }

    async fn clean_up(&self, node: &str) -> Result<(), ClusterError> {
        let done = self.controller().clean(node).await;
        done.map_err(told(&format!("wipe what the agent of {node} keeps")))
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

/// How its container ended last, in words.
fn last_exit(status: &ContainerStatus) -> Option<String> {
    let ended = status.last_state.as_ref()?.terminated.as_ref()?;
    Some(format!("exit code {}", ended.exit_code))
}
