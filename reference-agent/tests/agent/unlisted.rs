//! Lists that do not come: `/readyz` says of each kind what happened to the last try, not only that it is missing.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
};
use futures::StreamExt;
use kube::Client;
use lab_apiserver::Pki;
use reference_agent::{
    api_access::ApiServers, model::Kind, readiness::WATCH_SILENCE_LIMIT, testing::node::Node,
};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::running::{Control, KINDS, Running, create_service};

/// What an API server answers instead of a list, by resource: code, reason and message of a `Status`.
type Refusals = Arc<Mutex<BTreeMap<&'static str, (u16, &'static str, &'static str)>>>;

/// An API server without objects, which refuses what it is told to.
pub(crate) struct Refusing {
    refusals: Refusals,
    pub(crate) client: Client,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Refusing {
    pub(crate) async fn start() -> Self {
        let refusals = Refusals::default();
        let router = Router::new().fallback(answer).with_state(Arc::clone(&refusals));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let config = kube::Config::new(url.parse().expect("a URL"));
        let servers = ApiServers::new(&config, &[], None).await.expect("a server");
        Self {
            refusals,
            client: servers.client(&config).expect("a client"),
            serving: tokio::spawn(async move { axum::serve(listener, router).await }),
        }
    }

    pub(crate) fn refuse(
        &self,
        resource: &'static str,
        code: u16,
        reason: &'static str,
        message: &'static str,
    ) {
        let mut refusals = self.refusals.lock().expect("no handler panics");
        refusals.insert(resource, (code, reason, message));
    }

    pub(crate) fn allow(&self, resource: &str) {
        self.refusals.lock().expect("no handler panics").remove(resource);
    }
}

impl Drop for Refusing {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The end of a streamed list of nothing, and a watch behind it that stays silent.
async fn answer(State(refusals): State<Refusals>, uri: Uri) -> Response {
    let resource = uri.path().rsplit('/').next().unwrap_or_default();
    let refusal = refusals.lock().expect("no handler panics").get(resource).copied();
    if let Some((code, reason, message)) = refusal {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code,
        });
        let code = StatusCode::from_u16(code).expect("a code");
        return (code, status.to_string()).into_response();
    }
    let metadata = json!({"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}});
    let mark = json!({"kind": "Any", "apiVersion": "v1", "metadata": metadata});
    let end = json!({"type": "BOOKMARK", "object": mark});
    let line = Ok::<_, std::io::Error>(Bytes::from(format!("{end}\n")));
    let lines = futures::stream::iter([line]).chain(futures::stream::pending());
    Body::from_stream(lines).into_response()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_api_server_refuses_is_said_by_its_own_words_until_the_list_comes() {
    let server = Refusing::start().await;
    let forbidden = "nodes is forbidden: User \"agent\" cannot watch resource \"nodes\" in API group \"\" at the cluster scope";
    server.refuse("nodes", 403, "Forbidden", forbidden);
    server.refuse("endpointslices", 500, "InternalError", "etcdserver: no leader");
    let node = Node::new();
    let agent = Running::start_with(&server.client, &node).await;
    let nodes = (
        "nodes",
        &*format!("the API server answers 403 Forbidden: {forbidden}"),
    );
    let slices = "the API server answers 500 InternalError: etcdserver: no leader";
    agent.until_unlisted(&[("endpointslices", slices), nodes]).await;
    // Another reason takes the place of the one before.
    server.refuse("endpointslices", 401, "Unauthorized", "Unauthorized");
    let slices = "the API server answers 401 Unauthorized: Unauthorized";
    agent.until_unlisted(&[("endpointslices", slices), nodes]).await;
    server.allow("endpointslices");
    agent.until_unlisted(&[nodes]).await;
    server.allow("nodes");
    agent.until_readyz((200, "ok\n")).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_another_authority_and_one_that_does_not_know_the_token_are_told_apart() {
    let control = Control::start();
    let authority = Pki::new().expect("an authority");
    let node = Node::new();
    let stranger = control.client_with(authority.ca_pem(), "token").await;
    let agent = Running::start_with(&stranger, &node).await;
    // Signed by an authority of the same name.
    let why = control.unanswered("invalid peer certificate: BadSignature");
    agent.until_unlisted(&KINDS.map(|kinds| (kinds, &*why))).await;
    agent.stop().await;

    let unknown = control.client_with(control.authority(), "token").await;
    let agent = Running::start_with(&unknown, &node).await;
    let why = "the API server answers 401 Unauthorized: Unauthorized";
    agent.until_unlisted(&KINDS.map(|kinds| (kinds, why))).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_what_was_listed_readyz_says_which_watch_has_brought_nothing_for_too_long_until_it_does() {
    let control = Control::start();
    let node = Node::new();
    let agent = Running::start(&control, &node).await;
    agent.until_readyz((200, "ok\n")).await;
    // As if the watch had been refused ever since.
    let readiness = &agent.reports.readiness;
    let before = Instant::now().checked_sub(WATCH_SILENCE_LIMIT + Duration::from_secs(1));
    readiness.watch_answered(Kind::Service, before.expect("the machine has run for a while"));
    readiness.watch_failed(Kind::Service, "refused".to_owned());
    let told = "changes of services have not come since 90 s, and are served as last known: refused\n";
    agent.until_readyz((503, told)).await;
    assert!(readiness.is_healthy(), "what comes to this node is served");
    create_service(&control.client().await, "x", "10.96.1.1").await;
    agent.until_readyz((200, "ok\n")).await;
    agent.stop().await;
}
