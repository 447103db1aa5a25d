//! Requests to the API: of which resource, which may be sent again, and what they say if they fail.

use std::time::{Duration, Instant};

use kube::{Api, Client, api::DynamicObject};

use crate::{names::Kind, verdict::Halt};

/// How often a request is sent at most whose connection ends before its answer: an API server that stops ends all that it
/// has, and a client that keeps some finds out one by one.
const SENT: u32 = 5;

/// None is sent again that has been tried for so long: connections that had ended show at once, on a busy machine after
/// seconds.
const AGAIN: Duration = Duration::from_secs(30);

/// The answer to a request that is the same if it comes twice. One that breaks off is sent again, [`SENT`] times in all and
/// for [`AGAIN`]; what an API server answers is its answer.
///
/// # Errors
/// As the request's, of the last time.
pub(crate) async fn answered<T, F: Future<Output = kube::Result<T>>>(
    request: impl FnMut() -> F,
) -> kube::Result<T> {
    answered_within(AGAIN, request).await
}

/// As [`answered`], of a request that is not the same if it comes twice: where an earlier one has done it, the one that is sent again is
/// refused, and `is_done` tells by how. `done` then makes the answer.
pub(crate) async fn answered_once<T, F: Future<Output = kube::Result<T>>>(
    mut request: impl FnMut() -> F,
    is_done: impl Fn(&kube::Error) -> bool,
    done: impl AsyncFnOnce() -> kube::Result<T>,
) -> kube::Result<T> {
    let mut sent = 0;
    let answer = answered(|| {
        sent += 1;
        request()
    })
    .await;
    match answer {
        Err(error) if sent > 1 && is_done(&error) => done().await,
        answer => answer,
    }
}

async fn answered_within<T, F: Future<Output = kube::Result<T>>>(
    again: Duration,
    mut request: impl FnMut() -> F,
) -> kube::Result<T> {
    let began = Instant::now();
    let mut sent = 1;
    loop {
        match request().await {
            Err(error) if broke_off(&error) && sent < SENT && began.elapsed() < again => {
                tracing::debug!(%error, "a request broke off; it is sent again");
                sent += 1;
            }
            answer => return answer,
        }
    }
}

/// Whether the connection ended before the answer, or there was none.
fn broke_off(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_))
}

/// All objects of a kind, in one namespace or in all.
pub(crate) fn all(client: &Client, kind: Kind, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => api(client, kind, namespace),
        None => Api::all_with(client.clone(), &kind.resource()),
    }
}

/// Objects of a kind in a namespace; of all, if it is empty.
pub(crate) fn api(client: &Client, kind: Kind, namespace: &str) -> Api<DynamicObject> {
    let resource = kind.resource();
    if namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace, &resource)
    }
}

/// The end of a case by a request that the API has refused.
pub(crate) fn refused(what: &str, source: kube::Error) -> Halt {
    Halt::Api {
        what: what.to_owned(),
        source: Box::new(source),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use rstest::rstest;

    use super::*;

    fn broken_off<T>() -> kube::Result<T> {
        Err(kube::Error::Service("connection reset".into()))
    }

    #[rstest]
    #[case::at_once(0, 1)]
    #[case::after_connections_that_had_ended(4, 5)]
    #[tokio::test]
    async fn a_request_that_breaks_off_is_sent_again(#[case] broken: u32, #[case] expected: u32) {
        let sent = Cell::new(0);
        let answer = answered(|| {
            sent.set(sent.get() + 1);
            let sent = sent.get();
            async move { if sent <= broken { broken_off() } else { Ok(sent) } }
        });
        assert_eq!(answer.await.expect("an answer"), expected);
    }

    #[rstest]
    #[case::it_was_done_before(1, "NotFound", Ok("done"))]
    #[case::it_was_not_there(0, "NotFound", Err("NotFound"))]
    #[case::something_else_is_wrong(1, "Conflict", Err("Conflict"))]
    #[tokio::test]
    async fn what_was_done_before_its_answer_broke_off_is_done(
        #[case] broken: u32,
        #[case] said: &'static str,
        #[case] expected: Result<&'static str, &str>,
    ) {
        let sent = Cell::new(0);
        let is_done =
            |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.reason == "NotFound");
        let request = || {
            sent.set(sent.get() + 1);
            let sent = sent.get();
            async move {
                if sent <= broken {
                    return broken_off();
                }
                Err(kube::Error::Api(kube::core::Status::failure("no", said).boxed()))
            }
        };
        let answer = answered_once(request, is_done, async || Ok("done")).await;
        let answer = answer.map_err(|error| match error {
            kube::Error::Api(status) => status.reason,
            other => other.to_string(),
        });
        assert_eq!(answer, expected.map_err(str::to_owned));
    }

    #[tokio::test]
    async fn it_is_given_up_in_the_end() {
        let sent = Cell::new(0);
        let answer: kube::Result<()> = answered(|| {
            sent.set(sent.get() + 1);
            async { broken_off() }
        })
        .await;
        assert!(matches!(answer, Err(kube::Error::Service(_))));
        assert_eq!(sent.get(), SENT);
    }

    #[tokio::test]
    async fn one_that_took_long_to_break_off_is_not_sent_again() {
        let sent = Cell::new(0);
        let answer: kube::Result<()> = answered_within(Duration::ZERO, || {
            sent.set(sent.get() + 1);
            async { broken_off() }
        })
        .await;
        assert!(answer.is_err());
        assert_eq!(sent.get(), 1);
    }

    #[tokio::test]
    async fn what_an_api_server_says_is_an_answer() {
        let sent = Cell::new(0);
        let conflict = || kube::Error::Api(kube::core::Status::failure("another has it", "Conflict").boxed());
        let answer: kube::Result<()> = answered(|| {
            sent.set(sent.get() + 1);
            async { Err(conflict()) }
        })
        .await;
        assert!(matches!(answer, Err(kube::Error::Api(_))));
        assert_eq!(sent.get(), 1);
    }
}
