//! What is installed in a cluster, as its target's file says: where its agents are. They are looked at, and left alone.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{AttachParams, ListParams, LogParams},
};
use serde::{Deserialize, Serialize};
use tokio::{io::AsyncReadExt as _, time::timeout};

use super::{
    ApiOnly, Extension, KubernetesError, LIMITS, Options,
    error::{api, words},
    limits::ask,
};
use crate::{
    cluster::{AgentState, ClusterError, Node},
    target::Agent,
};

/// The agents of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agents {
    /// Where they are.
    pub agent: Agent,
    /// What prints what one of them has programmed.
    pub dump: Option<Vec<String>>,
}

/// What cases can see of a cluster beside its API: agents, where the target says which pods they are.
///
/// # Errors
/// There is no kubeconfig any more.
pub async fn extension(options: &Options) -> Result<Arc<dyn Extension>, KubernetesError> {
    Ok(match &options.tested.agents {
        Some(agents) => Arc::new(Installed::new(options.connection.client().await?, agents.clone())),
        None => Arc::new(ApiOnly),
    })
}

/// Agents that are there.
struct Installed {
    client: Client,
    agents: Agents,
    seen: Mutex<BTreeMap<String, Seen>>,
}

/// What was seen of one agent so far.
#[derive(Debug, Default)]
struct Seen {
    /// The last run: its pod, and how often that had ended before.
    run: (String, i32),
    starts: u32,
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
    match nodes.iter().find(|node| !is_on(node)) {
        None => Ok(()),
        Some(node) => Err(KubernetesError::NoAgent {
            node: node.name.clone(),
            namespace: namespace.clone(),
            selector: agents.agent.selector(),
            container: container.clone(),
        }),
    }
}

fn on(pod: &Pod, node: &str) -> bool {
    let placed = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    placed == Some(node) && pod.metadata.deletion_timestamp.is_none()
}

fn status<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let all = pod.status.as_ref()?.container_statuses.as_ref()?;
    all.iter().find(|status| status.name == container)
}

impl Installed {
    fn new(client: Client, agents: Agents) -> Self {
        Self {
            client,
            agents,
            seen: Mutex::default(),
        }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.agents.agent.namespace)
    }

    async fn list(&self) -> Result<Vec<Pod>, ClusterError> {
        let params = ListParams::default().labels(&self.agents.agent.selector());
        let listed = timeout(LIMITS.request, self.pods().list(&params)).await;
        let failed = |why: String| ClusterError::Failed {
            what: "list the agents".to_owned(),
            why,
        };
        let listed = listed.map_err(|_| failed(format!("no answer within {:?}", LIMITS.request)))?;
        Ok(listed.map_err(|error| failed(words(&error)))?.items)
    }

    /// How often it has been started, as far as was seen.
    fn starts(&self, node: &str, run: Option<(String, i32)>) -> u32 {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = seen.entry(node.to_owned()).or_default();
        if let Some(run) = run.filter(|run| *run != seen.run) {
            seen.run = run;
            seen.starts += 1;
        }
        seen.starts
    }

    /// The end of what an agent has said, and what it has programmed.
    async fn keep(&self, pod: &Pod, folder: &Path) -> Result<(), String> {
        let Agents { agent, dump } = &self.agents;
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
impl Extension for Installed {
    /// Its process is none that is seen from here.
    async fn agent(&self, node: &str) -> Result<AgentState, ClusterError> {
        let pods = self.list().await?;
        let pod = pods.iter().find(|pod| on(pod, node));
        let status = pod.and_then(|pod| status(pod, &self.agents.agent.container));
        let run = pod
            .zip(status)
            .map(|(pod, status)| (pod.uid().unwrap_or_default(), status.restart_count));
        Ok(AgentState {
            pid: None,
            starts: self.starts(node, run),
            ready: status.map(|status| status.ready),
            last_exit: status.and_then(last_exit),
            way: None,
            variant: None,
        })
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
