//! Probe clients: where they run, and one run of a plan.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cluster::{Capability, Cluster, Place};
use oracle::history::{Attempt, Plan};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin},
    task::JoinHandle,
};

use crate::{context::Context, history::History, verdict::Halt};

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

impl Context {
    /// Clients in pods and on hosts of every node: vantages ps, pr and h.
    #[must_use]
    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// Clients in pods of every node: vantages ps and pr.
    #[must_use]
    pub fn pod_clients(&self) -> Vec<Client> {
        self.clients_where(|client| matches!(client.place, Place::Pod { .. }))
    }

    /// Clients on hosts of every node: vantage h.
    #[must_use]
    pub fn host_clients(&self) -> Vec<Client> {
        self.clients_where(|client| matches!(client.place, Place::Host { .. }))
    }

    /// The client outside the cluster, where there is one: vantage x.
    #[must_use]
    pub fn outside(&self) -> Option<Client> {
        let capabilities = &self.cluster.describe().capabilities;
        capabilities.contains(&Capability::Outside).then(|| Client {
            name: "outside".to_owned(),
            node: String::new(),
            place: Place::Outside,
            private_cgroups: false,
        })
    }

    /// Clients on a node.
    #[must_use]
    pub fn clients_on(&self, node: &str) -> Vec<Client> {
        self.clients_where(|client| client.node == node)
    }

    fn clients_where(&self, test: impl Fn(&Client) -> bool) -> Vec<Client> {
        self.clients
            .iter()
            .filter(|client| test(client))
            .cloned()
            .collect()
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
    /// Starts the client of a plan.
    pub(crate) async fn start(
        cluster: &Cluster,
        client: &Client,
        plan: &Plan,
        history: Arc<History>,
    ) -> Result<Self, Halt> {
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
        let mut text = serde_json::to_string(plan).map_err(|error| broken(&error.to_string()))?;
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
