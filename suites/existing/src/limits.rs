//! Every limit of clusters by a kubeconfig.

use std::time::Duration;

use tokio::time::timeout;

use super::KubernetesError;

/// Time limits and sizes. They bound waits for distant and busy API servers.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// One request to the API and its response.
    pub request: Duration,
    /// Interval between checks of a condition.
    pub look: Duration,
    /// Buffer of each of stdin, stdout and stderr, in bytes.
    pub pipe_bytes: usize,
    /// Lines of an agent's log that are kept as evidence, from its end.
    pub log_lines: i64,
    /// Bytes of its programmed state that are kept.
    pub dump_bytes: u64,
    /// Until a new namespace has its ServiceAccount, which a controller creates: pods are refused before.
    pub account: Duration,
    /// Until it has the image pull Secrets: the controller that copies them needs a watch event.
    pub pull_secrets: Duration,
    /// From the creation of a pod until it is Ready, the pull of its image included.
    pub pods: Duration,
    /// From the start or stop of agents until they are ready or gone.
    pub agents: Duration,
    /// Attempts of a write that conflicts with other writers.
    pub conflicts: u32,
    /// From the deletion of the suite's namespace until it is gone.
    pub namespace_ends: Duration,
    /// Duration of a Lease without renewal.
    pub lease: Duration,
    /// Interval between renewals, as in leader elections of Kubernetes (`RetryPeriod` of client-go): a run soon
    /// notices an outage of the API server, and begins no case that would fail by it.
    pub lease_renewed: Duration,
    /// One renewal: several may fail before the Lease expires.
    pub lease_answer: Duration,
    /// Time without a renewal after which running cases end. Shorter than `lease`, so that they end before another
    /// run may take it.
    pub lease_given_up: Duration,
    /// Time without a renewal after which the run is aborted: a restart or failover of an API server takes a minute
    /// or two, and a longer outage needs a person.
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

/// Sends a request, with the time limit of one; the caller handles refusals.
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
