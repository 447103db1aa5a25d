//! An API server that lets through what rules of RBAC allow, and writes down what was asked.

use std::{
    collections::BTreeSet,
    fmt,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{Method, StatusCode},
    response::{IntoResponse as _, Response},
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Client;
use serde_json::json;

/// The largest request body: an Event.
const LARGEST: usize = 64 * 1024;

/// What a request needs: a verb for a resource of a group.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Need {
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) verb: String,
}

impl fmt::Display for Need {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.verb, self.resource)
    }
}

/// Everything that rules allow.
pub(crate) fn allowed(rules: &[PolicyRule]) -> BTreeSet<Need> {
    let mut allowed = BTreeSet::new();
    for rule in rules {
        assert_eq!(rule.resource_names, None);
        assert_eq!(rule.non_resource_urls, None);
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    let need = Need {
                        group: group.clone(),
                        resource: resource.clone(),
                        verb: verb.clone(),
                    };
                    assert!(allowed.insert(need.clone()), "{need} is allowed twice");
                }
            }
        }
    }
    allowed
}

/// The server in front of another one.
#[derive(Clone)]
pub(crate) struct Authorizer(Arc<Shared>);

struct Shared {
    allowed: BTreeSet<Need>,
    client: Client,
    /// Whether the server knows streamed lists (KEP-3157).
    streams: bool,
    asked: Mutex<BTreeSet<Need>>,
}

impl Authorizer {
    /// Serves at an address of loopback as long as the runtime runs.
    pub(crate) async fn start(allowed: BTreeSet<Need>, client: Client, streams: bool) -> (Self, SocketAddr) {
        let authorizer = Self(Arc::new(Shared {
            allowed,
            client,
            streams,
            asked: Mutex::default(),
        }));
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("an address");
        let router = Router::new().fallback(answer).with_state(authorizer.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (authorizer, address)
    }

    /// What was asked so far, allowed or not.
    pub(crate) fn asked(&self) -> BTreeSet<Need> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Need>> {
        self.0.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn answer(State(authorizer): State<Authorizer>, request: Request) -> Response {
    let need = need(&request);
    authorizer.lock().insert(need.clone());
    let Shared {
        allowed,
        client,
        streams,
        ..
    } = &*authorizer.0;
    if !allowed.contains(&need) {
        return status(
            StatusCode::FORBIDDEN,
            "Forbidden",
            &format!("{need} is forbidden"),
        );
    }
    let query = request.uri().query().unwrap_or_default();
    if !streams && query.contains("sendInitialEvents=true") {
        let said = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList \
                    feature gate is enabled";
        return status(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", said);
    }
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, LARGEST).await.expect("a small body");
    let mut forwarded = axum::http::Request::builder().method(parts.method).uri(parts.uri);
    for (name, value) in &parts.headers {
        if !["host", "authorization", "connection", "content-length"].contains(&name.as_str()) {
            forwarded = forwarded.header(name, value);
        }
    }
    let forwarded = forwarded.body(kube::client::Body::from(body)).expect("a request");
    match client.send(forwarded).await {
        Ok(response) => response.map(Body::new),
        Err(error) => status(StatusCode::BAD_GATEWAY, "Unknown", &error.to_string()),
    }
}

/// As an API server reads a request (kubernetes.io, "Request Attributes" of authorization).
fn need(request: &Request) -> Need {
    let path: Vec<&str> = request
        .uri()
        .path()
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    let (group, rest) = match path.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => panic!("not a resource: {}", request.uri()),
    };
    let rest = match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        rest => rest,
    };
    let (resource, named) = match rest {
        [resource] => (*resource, false),
        [resource, _] => (*resource, true),
        other => panic!("a subresource: {other:?}"),
    };
    let query = request.uri().query().unwrap_or_default();
    let verb = match *request.method() {
        Method::GET if query.contains("watch=") => "watch",
        Method::GET if named => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PATCH => "patch",
        Method::PUT => "update",
        _ => "delete",
    };
    Need {
        group: group.to_owned(),
        resource: resource.to_owned(),
        verb: verb.to_owned(),
    }
}

fn status(code: StatusCode, reason: &str, message: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    (code, axum::Json(status)).into_response()
}
