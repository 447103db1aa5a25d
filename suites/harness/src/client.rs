//! Probe clients: where they run, and one run of a plan.

use std::{
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cluster::{Capability, Cluster, Description, Place};
use oracle::history::{Attempt, Plan, PlanEntry};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin},
    task::JoinHandle,
};

use crate::{history::History, pods::Backend, reused_flows::KnownFlows, verdict::Halt};

/// How much of a client's stderr is kept for its error.
const STDERR_BYTES: u64 = 64 * 1024;

/// How long a client may take to end after its stdin has, before it is killed.
const ENDS: Duration = Duration::from_secs(10);

/// A place that probes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Name: `pod@node-1`, `host@node-1`, `outside`.
    pub name: String,
    /// Its node; empty outside the cluster.
    pub node: String,
    /// Where its processes run.
    pub place: Place,
    /// Whether each of its processes has a cgroup namespace of its own.
    pub private_cgroups: bool,
}

impl Client {
    /// One in a pod of the case's own.
    #[must_use]
    pub fn in_pod(pod: &Backend) -> Self {
        Self {
            name: format!("{}@{}", pod.plain(), pod.node),
            node: pod.node.clone(),
            place: Place::Pod {
                namespace: pod.namespace.clone(),
                name: pod.in_api.clone(),
            },
            private_cgroups: false,
        }
    }
}

/// The clients of a case. As a slice: those in the cluster, in pods and on hosts of every node (vantages ps, pr and h).
#[derive(Clone, Debug)]
pub struct Clients {
    inside: Vec<Client>,
    outside: Option<Client>,
}

impl Clients {
    /// Clients in these pods and on their nodes, and the one outside, where the cluster has such.
    pub(crate) fn new(pods: Vec<Backend>, cluster: &Description) -> Self {
        let has = |capability| cluster.capabilities.contains(&capability);
        let has_hosts = has(Capability::HostNetwork);
        let client = |name: String, node: String, place| Client {
            name,
            node,
            place,
            private_cgroups: false,
        };
        let mut inside = Vec::new();
        for pod in pods {
            let node = pod.node;
            let (namespace, name) = (pod.namespace, pod.in_api);
            let place = Place::Pod { namespace, name };
            inside.push(client(format!("pod@{node}"), node.clone(), place));
            if has_hosts {
                let place = Place::Host { node: node.clone() };
                inside.push(client(format!("host@{node}"), node, place));
            }
        }
        let outside = || client("outside".to_owned(), String::new(), Place::Outside);
        Self {
            inside,
            outside: has(Capability::Outside).then(outside),
        }
    }

    /// Those in pods of every node: vantages ps and pr.
    #[must_use]
    pub fn in_pods(&self) -> Vec<Client> {
        self.those(|client| matches!(client.place, Place::Pod { .. }))
    }

    /// Those on hosts of every node: vantage h.
    #[must_use]
    pub fn on_hosts(&self) -> Vec<Client> {
        self.those(|client| matches!(client.place, Place::Host { .. }))
    }

    /// Those on a node.
    #[must_use]
    pub fn on(&self, node: &str) -> Vec<Client> {
        self.those(|client| client.node == node)
    }

    /// The one outside the cluster, where there is one: vantage x.
    #[must_use]
    pub fn outside(&self) -> Option<Client> {
        self.outside.clone()
    }

    fn those(&self, test: impl Fn(&Client) -> bool) -> Vec<Client> {
        let inside = self.inside.iter();
        inside.filter(|client| test(client)).cloned().collect()
    }
}

impl Deref for Clients {
    type Target = [Client];

    fn deref(&self) -> &[Client] {
        &self.inside
    }
}

/// A plan that runs.
pub(crate) struct Run {
    client: String,
    child: Child,
    /// Open as long as it is to run: it ends with its stdin, wherever it is.
    stdin: ChildStdin,
    attempts: Arc<Mutex<Vec<Attempt>>>,
    reader: JoinHandle<Result<(), String>>,
    stderr: JoinHandle<String>,
}

impl Run {
    /// Starts a client with these entries.
    pub(crate) async fn start(
        cluster: &Cluster,
        client: &Client,
        entries: Vec<PlanEntry>,
        history: Arc<History>,
        flows: Arc<KnownFlows>,
    ) -> Result<Self, Halt> {
        let plan = Plan {
            client: client.name.clone(),
            entries,
        };
        let private = client.private_cgroups.then_some("--private-cgroups");
        let argv = ["probe", "client", "--while-stdin"].into_iter().chain(private);
        let argv: Vec<String> = argv.map(str::to_owned).collect();
        let mut child = cluster.exec(&client.place, &argv).await?;
        let broken = |what: &str| Halt::Harness(format!("the probe client {} {what}", client.name));
        let (Some(mut stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(broken("has no pipes"));
        };
        let mut text = serde_json::to_string(&plan).map_err(|error| broken(&error.to_string()))?;
        text.push('\n');
        stdin
            .write_all(text.as_bytes())
            .await
            .map_err(|error| broken(&format!("did not take its plan: {error}")))?;
        let attempts = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&attempts);
        let reader = tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Some(line) = lines.next_line().await.map_err(|error| error.to_string())? {
                let attempt: Attempt =
                    serde_json::from_str(&line).map_err(|error| format!("{error} in {line:?}"))?;
                history.attempt(&line, &attempt);
                flows.note_failure(&attempt);
                sink.lock().unwrap_or_else(PoisonError::into_inner).push(attempt);
            }
            Ok(())
        });
        let stderr = tokio::spawn(async move {
            let mut text = String::new();
            // What can't be read explains nothing.
            let _ = stderr.take(STDERR_BYTES).read_to_string(&mut text).await;
            text
        });
        Ok(Self {
            client: client.name.clone(),
            child,
            stdin,
            attempts,
            reader,
            stderr,
        })
    }

    /// How many attempts there are so far, after a filter.
    pub(crate) fn with_attempts<T>(&self, look: impl FnOnce(&[Attempt]) -> T) -> T {
        look(&self.attempts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for the end of the plan.
    pub(crate) async fn finish(mut self, limit: Duration) -> Result<Vec<Attempt>, Halt> {
        let Ok(status) = tokio::time::timeout(limit, self.child.wait()).await else {
            return Err(Halt::Harness(format!(
                "the probe client {} has not ended its plan within {limit:?}",
                self.client
            )));
        };
        let status =
            status.map_err(|error| Halt::Harness(format!("the probe client {}: {error}", self.client)))?;
        if !status.success() {
            let stderr = self.stderr.await.unwrap_or_default();
            return Err(Halt::Harness(format!(
                "the probe client {} ended with {status}: {}",
                self.client,
                stderr.trim()
            )));
        }
        Self::collect(&self.client, self.reader, &self.attempts).await
    }

    /// Ends it now. A plan that has ended before is an error: a hole in a window that should have none.
    pub(crate) async fn stop(mut self) -> Result<Vec<Attempt>, Halt> {
        if let Ok(Some(status)) = self.child.try_wait() {
            let stderr = self.stderr.await.unwrap_or_default();
            return Err(Halt::Harness(format!(
                "the probe client {} ended before its window, with {status}: {}",
                self.client,
                stderr.trim()
            )));
        }
        // By its stdin, so that what it has written arrives whole from wherever it runs.
        drop(self.stdin);
        if tokio::time::timeout(ENDS, self.child.wait()).await.is_err() {
            let killed = self.child.kill().await;
            killed.map_err(|error| Halt::Harness(format!("the probe client {}: {error}", self.client)))?;
        }
        Self::collect(&self.client, self.reader, &self.attempts).await
    }

    async fn collect(
        client: &str,
        reader: JoinHandle<Result<(), String>>,
        attempts: &Mutex<Vec<Attempt>>,
    ) -> Result<Vec<Attempt>, Halt> {
        let wrote =
            |what: String| Halt::Harness(format!("the probe client {client} wrote no attempt: {what}"));
        reader
            .await
            .map_err(|error| wrote(error.to_string()))?
            .map_err(wrote)?;
        Ok(std::mem::take(
            &mut *attempts.lock().unwrap_or_else(PoisonError::into_inner),
        ))
    }
}
