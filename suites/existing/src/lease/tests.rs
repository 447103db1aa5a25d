//! Renewals with an API server whose responses are chosen by the test, in paused time.

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

/// How the server treats requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    Answers,
    /// Ignores them, without a response.
    Silent,
    /// Responds with a server error.
    Broken,
    /// Carries them out, without a response.
    Unanswered,
}

/// An API server with one Lease.
struct Server {
    behaviour: Behaviour,
    lease: Option<Object>,
}

type SharedServer = Arc<Mutex<Server>>;

fn client(server: &SharedServer) -> Client {
    let server = Arc::clone(server);
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let behaviour = server.lock().unwrap().behaviour;
            let answer = match behaviour {
                Behaviour::Silent => None,
                Behaviour::Broken => Some(failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")),
                Behaviour::Answers => Some(server.lock().unwrap().answer(&parts.method, &body)),
                Behaviour::Unanswered => {
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

/// The next resourceVersion.
fn after(there: &Object) -> Option<String> {
    let version = there.metadata.resource_version.as_deref().unwrap();
    Some((version.parse::<u64>().unwrap() + 1).to_string())
}

fn failure(code: StatusCode, reason: &str) -> Response<Body> {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "code": code.as_u16(),
        "message": "as the test wants",
    });
    response(code, &status)
}

fn response(code: StatusCode, body: &Value) -> Response<Body> {
    let body = Body::from(serde_json::to_vec(body).unwrap());
    Response::builder().status(code).body(body).unwrap()
}

/// A held Lease, and its server.
fn held() -> (SharedServer, LeaseWatch) {
    let mut taken = own(&Options::of_a_test(), BTreeSet::new(), "user@host").unwrap();
    taken.metadata.resource_version = Some("1".to_owned());
    let server = Arc::new(Mutex::new(Server {
        behaviour: Behaviour::Answers,
        lease: Some(taken.clone()),
    }));
    let leases = Api::namespaced(client(&server), LEASE);
    let (publisher, watch) = StatePublisher::new();
    tokio::spawn(renew(leases, taken, publisher));
    (server, watch)
}

fn becomes(server: &SharedServer, behaviour: Behaviour) {
    server.lock().unwrap().behaviour = behaviour;
}

async fn seconds(number: u64) {
    sleep(Duration::from_secs(number)).await;
}

/// Whether no case may begin, and whether running cases have to end.
fn stops(watch: &LeaseWatch) -> (bool, bool) {
    match watch.now() {
        LeaseState::Held { .. } => (false, false),
        LeaseState::Unanswered { expires, .. } => (true, expires),
        LeaseState::Lost { .. } => (true, true),
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_ends_before_another_may_take_a_lease_that_can_not_be_renewed() {
    for behaviour in [Behaviour::Silent, Behaviour::Broken] {
        let (server, watch) = held();
        seconds(20).await;
        becomes(&server, behaviour);
        seconds(11).await;
        assert_eq!(stops(&watch), (true, false), "{behaviour:?}");
        seconds(16).await;
        assert_eq!(
            stops(&watch),
            (true, false),
            "{behaviour:?}: less than 30 s after the last renewal"
        );
        seconds(4).await;
        assert_eq!(
            stops(&watch),
            (true, true),
            "{behaviour:?}: more than 30 s after the last renewal"
        );
        assert_eq!(watch.lost(), None, "it can come back");
        assert!(
            LIMITS.lease > Duration::from_secs(31),
            "no other run may take it yet"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_taken_up_again_whenever_the_api_server_is_back_unless_that_takes_too_long() {
    for behaviour in [Behaviour::Silent, Behaviour::Broken, Behaviour::Unanswered] {
        for away in [18, 60, 280] {
            let (server, mut watch) = held();
            seconds(20).await;
            becomes(&server, behaviour);
            seconds(away).await;
            assert_eq!(
                (stops(&watch).0, watch.absences()),
                (true, 1),
                "{behaviour:?}, {away} s"
            );
            becomes(&server, Behaviour::Answers);
            assert_eq!(watch.settled().await, Ok(()), "{behaviour:?}, {away} s");
            seconds(120).await;
            assert_eq!(stops(&watch), (false, false), "{behaviour:?}, {away} s");
            assert_eq!(watch.absences(), 1);
        }
        let (server, mut watch) = held();
        seconds(20).await;
        becomes(&server, behaviour);
        let why = "it could not be renewed for 300s".to_owned();
        watch.expires().await;
        assert_eq!(watch.settled().await, Err(why.clone()), "{behaviour:?}");
        // A lost Lease stays lost.
        becomes(&server, Behaviour::Answers);
        seconds(60).await;
        assert_eq!(watch.lost(), Some(why));
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_is_confirmed_by_a_renewal_that_begins_later() {
    let (server, mut watch) = held();
    seconds(1).await;
    becomes(&server, Behaviour::Broken);
    assert_eq!(stops(&watch), (false, false), "nothing has asked since");
    watch.confirmed().await;
    assert_eq!(stops(&watch), (true, false));
    becomes(&server, Behaviour::Answers);
    assert_eq!(watch.settled().await, Ok(()));
    watch.confirmed().await;
    assert_eq!(stops(&watch), (false, false));
}

async fn lost(watch: &mut LeaseWatch) {
    while watch.lost().is_none() {
        watch.expires().await;
        seconds(1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_another_has_or_that_is_gone_is_lost_at_the_next_renewal() {
    for behaviour in [Behaviour::Answers, Behaviour::Silent] {
        let (server, mut watch) = held();
        becomes(&server, behaviour);
        seconds(60).await;
        {
            let mut server = server.lock().unwrap();
            server.behaviour = Behaviour::Answers;
            let there = server.lease.as_mut().unwrap();
            there.metadata.resource_version = after(there);
            there.spec.as_mut().unwrap().holder_identity = Some("run-2-two of another".to_owned());
        }
        lost(&mut watch).await;
        let why = "its holder is run-2-two of another now".to_owned();
        assert_eq!(watch.settled().await, Err(why), "{behaviour:?}");

        let (server, mut watch) = held();
        becomes(&server, behaviour);
        seconds(60).await;
        {
            let mut server = server.lock().unwrap();
            server.behaviour = Behaviour::Answers;
            server.lease = None;
        }
        lost(&mut watch).await;
        assert_eq!(
            watch.settled().await,
            Err("it was deleted".to_owned()),
            "{behaviour:?}"
        );
    }
}
