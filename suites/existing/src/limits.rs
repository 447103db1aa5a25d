//! Every limit of clusters by a kubeconfig.

use std::time::Duration;

use tokio::time::timeout;

use super::KubernetesError;

/// How long things may take, and how much is read. They bound waits for API servers that are far away and busy.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// One question to the API and its answer.
    pub request: Duration,
    /// From one look at something that is waited for to the next.
    pub look: Duration,
    /// What is kept of an answer's stream before its reader takes it, in bytes, for each of stdin, stdout and stderr.
    pub pipe_bytes: usize,
    /// How much of an agent's log is kept for evidence, in lines from its end.
    pub log_lines: i64,
    /// How much is kept of what it has programmed, in bytes.
    pub dump_bytes: u64,
    /// How long a fresh namespace may be without its ServiceAccount, which a controller makes: pods are refused until then.
    pub account: Duration,
    /// How long it may be without the Secrets by which images are pulled: whatever copies them there is told of it by a watch.
    pub pull_secrets: Duration,
    /// From the creation of a pod until it is Ready, the pull of its image included.
    pub pods: Duration,
    /// From what starts or ends an agent until it runs or is gone, or all are ready.
    pub agents: Duration,
    /// How often something is written again that somebody else has written at the same time.
    pub conflicts: u32,
    /// From the removal of the suite's namespace until it is gone.
    pub namespace_ends: Duration,
    /// How long a Lease counts that is not renewed.
    pub lease: Duration,
    /// From one renewal to the next, as leader elections of Kubernetes have it (the `RetryPeriod` of client-go): so soon a run sees
    /// that its API server is away, and begins no case that would only show that.
    pub lease_renewed: Duration,
    /// How long a renewal may take: several may fail before the Lease expires.
    pub lease_answer: Duration,
    /// How long it may fail to be renewed until what is under way ends. Shorter than `lease`, so that it is ending before another
    /// may take it.
    pub lease_given_up: Duration,
    /// How long it may fail to be renewed until the run gives it up: an API server that is started again, or fails over, is back
    /// within a minute or two, and one that is not needs a person.
    pub lease_awaited: Duration,
}

/// The limits in force.
pub const LIMITS: Limits = Limits {
    request: Duration::from_secs(30),
    look: Duration::from_millis(250),
    pipe_bytes: 64 * 1024,
    log_lines: 5000,
    dump_bytes: 4 * 1024 * 1024,
    account: Duration::from_secs(30),
    pull_secrets: Duration::from_secs(15),
    pods: Duration::from_secs(180),
    agents: Duration::from_secs(180),
    conflicts: 5,
    namespace_ends: Duration::from_secs(120),
    lease: Duration::from_secs(40),
    lease_renewed: Duration::from_secs(2),
    lease_answer: Duration::from_secs(8),
    lease_given_up: Duration::from_secs(30),
    lease_awaited: Duration::from_secs(300),
};

/// Asks the API, for as long as one question may take; what it refuses is for the caller.
pub(super) async fn ask<T>(
    what: &str,
    question: impl Future<Output = kube::Result<T>>,
) -> Result<kube::Result<T>, KubernetesError> {
    timeout(LIMITS.request, question)
        .await
        .map_err(|_| KubernetesError::Late {
            what: what.to_owned(),
            limit: LIMITS.request,
        })
}
