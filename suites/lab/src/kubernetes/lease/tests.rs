//! Renewals before an API server that answers as it is told to, in time that passes by itself.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;

/// What becomes of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Answers,
    /// Nothing is done, and nothing is said.
    Silent,
    /// Everything is an error of the server.
    Broken,
    /// What is asked is done, and nothing is said.
    Unheard,
}

/// An API server that has one Lease.
struct Server {
    manner: Manner,
    lease: Option<Object>,
}

type Shared = Arc<Mutex<Server>>;

fn client(server: &Shared) -> Client {
    let server = Arc::clone(server);
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let manner = server.lock().unwrap().manner;
            let answer = match manner {
                Manner::Silent => None,
                Manner::Broken => Some(failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")),
                Manner::Answers => Some(server.lock().unwrap().answer(&parts.method, &body)),
                Manner::Unheard => {
                    server.lock().unwrap().answer(&parts.method, &body);
                    None
                }
            };
            match answer {
                Some(answer) => Ok::<_, Infallible>(answer),
                None => std::future::pending().await,
            }
        }
    });
    Client::new(service, "default")
}

impl Server {
    fn answer(&mut self, method: &Method, body: &[u8]) -> Response<Body> {
        let Some(there) = &mut self.lease else {
            return failure(StatusCode::NOT_FOUND, "NotFound");
        };
        if *method == Method::PUT {
            let mut next: Object = serde_json::from_slice(body).unwrap();
            if next.metadata.resource_version != there.metadata.resource_version {
                return failure(StatusCode::CONFLICT, "Conflict");
            }
            next.metadata.resource_version = after(there);
            *there = next;
        }
        response(StatusCode::OK, &json!(there))
    }
}

/// The resourceVersion that follows.
fn after(there: &Object) -> Option<String> {
    let version = there.metadata.resource_version.as_deref().unwrap();
    Some((version.parse::<u64>().unwrap() + 1).to_string())
}

fn failure(code: StatusCode, reason: &str) -> Response<Body> {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "code": code.as_u16(),
        "message": "as it was told to",
    });
    response(code, &status)
}

fn response(code: StatusCode, body: &Value) -> Response<Body> {
    let body = Body::from(serde_json::to_vec(body).unwrap());
    Response::builder().status(code).body(body).unwrap()
}

/// A Lease that is held from now on, and the server that has it.
fn held() -> (Shared, Loss) {
    let mut taken = own(&Options::of_a_test(), BTreeSet::new(), "somebody").unwrap();
    taken.metadata.resource_version = Some("1".to_owned());
    let server = Arc::new(Mutex::new(Server {
        manner: Manner::Answers,
        lease: Some(taken.clone()),
    }));
    let leases = Api::namespaced(client(&server), NAME);
    let (lost, loss) = watch::channel(None);
    tokio::spawn(renew(leases, taken, lost));
    (server, Loss(loss))
}

fn becomes(server: &Shared, manner: Manner) {
    server.lock().unwrap().manner = manner;
}

async fn seconds(number: u64) {
    sleep(Duration::from_secs(number)).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_can_not_be_renewed_is_given_up_before_another_may_take_it() {
    for manner in [Manner::Silent, Manner::Broken] {
        let (server, loss) = held();
        // Renewed after 8 and 16 seconds.
        seconds(20).await;
        becomes(&server, manner);
        seconds(25).await;
        assert_eq!(loss.now(), None, "{manner:?}: 29 s after the last renewal");
        seconds(2).await;
        let why = loss.now().expect("31 s after the last renewal");
        assert_eq!(why, "it could not be renewed for 30s", "{manner:?}");
        assert!(LIMITS.lease > Duration::from_secs(31), "it is nobody else's yet");
        // Once lost, it stays so.
        becomes(&server, Manner::Answers);
        seconds(60).await;
        assert!(loss.now().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_for_less_takes_nothing_away() {
    for manner in [Manner::Silent, Manner::Broken, Manner::Unheard] {
        let (server, loss) = held();
        seconds(20).await;
        becomes(&server, manner);
        seconds(18).await;
        becomes(&server, Manner::Answers);
        seconds(120).await;
        assert_eq!(loss.now(), None, "{manner:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_another_has_or_that_is_gone_is_lost_at_the_next_renewal() {
    let (server, loss) = held();
    seconds(1).await;
    {
        let mut server = server.lock().unwrap();
        let there = server.lease.as_mut().unwrap();
        there.metadata.resource_version = after(there);
        there.spec.as_mut().unwrap().holder_identity = Some("run-2-two of another".to_owned());
    }
    seconds(8).await;
    let why = "its holder is run-2-two of another now";
    assert_eq!(loss.now().as_deref(), Some(why));

    let (server, loss) = held();
    seconds(1).await;
    server.lock().unwrap().lease = None;
    seconds(8).await;
    assert_eq!(loss.now().as_deref(), Some("it was deleted"));
}
