//! Every limit of clusters by a kubeconfig.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::KubernetesError;

/// Time limits and sizes. They bound waits for distant and busy API servers.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// One request to the API and its response.
    pub request: Duration,
    /// From the end of a connection until another API server answers: the one that it went to may have been stopped.
    pub reconnect: Duration,
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
    /// From the creation of a Job until its first pod exists; later, its events say why none does.
    pub first_pod: Duration,
    /// Bytes of the log of a Job's pod that are read: more than kubelets keep in one file.
    pub job_log_bytes: i64,
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
    reconnect: Duration::from_secs(10),
    look: Duration::from_millis(250),
    pipe_bytes: 64 * 1024,
    log_lines: 5000,
    dump_bytes: 4 * 1024 * 1024,
    account: Duration::from_secs(30),
    pull_secrets: Duration::from_secs(15),
    pods: Duration::from_secs(180),
    first_pod: Duration::from_secs(15),
    job_log_bytes: 12 * 1024 * 1024,
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

/// Sends a request that may be repeated, and repeats it for a limited time while no API server responds: a connection
/// ends with the server that a case has stopped, and another server accepts the next one.
pub(super) async fn ask_again<T, F>(
    what: &str,
    question: impl Fn() -> F,
) -> Result<kube::Result<T>, KubernetesError>
where
    F: Future<Output = kube::Result<T>>,
{
    let began = Instant::now();
    loop {
        match ask(what, question()).await? {
            Err(error) if !matches!(error, kube::Error::Api(_)) && began.elapsed() < LIMITS.reconnect => {
                tracing::debug!(what, %error, "no response; the request is repeated");
                sleep(LIMITS.look).await;
            }
            answer => return Ok(answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, io};

    use kube::core::Status;

    use super::*;

    fn broken() -> kube::Error {
        kube::Error::Service(Box::new(io::Error::from(io::ErrorKind::ConnectionReset)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_repeated_while_no_api_server_responds_and_not_for_ever() {
        let sent = Cell::new(0_u32);
        let answer = ask_again("list", || {
            sent.set(sent.get() + 1);
            let answers = sent.get() > 3;
            async move { if answers { Ok(7) } else { Err(broken()) } }
        });
        assert_eq!((answer.await.unwrap().unwrap(), sent.get()), (7, 4));

        let began = Instant::now();
        let answer = ask_again("list", || async { Err::<(), _>(broken()) });
        assert!(matches!(answer.await.unwrap(), Err(kube::Error::Service(_))));
        assert!(began.elapsed() >= LIMITS.reconnect && began.elapsed() < LIMITS.request);
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_api_server_refuses_is_not_asked_again() {
        let sent = Cell::new(0);
        let answer = ask_again("list", || {
            sent.set(sent.get() + 1);
            async { Err::<(), _>(kube::Error::Api(Status::failure("no", "Forbidden").boxed())) }
        });
        assert!(matches!(answer.await.unwrap(), Err(kube::Error::Api(_))));
        assert_eq!(sent.get(), 1);
    }
}
