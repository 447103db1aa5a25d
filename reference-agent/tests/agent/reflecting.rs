//! Watches against an API server that says what it is told to, malformed objects and broken lines included.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use futures::StreamExt;
use rand::{SeedableRng as _, rngs::StdRng};
use reference_agent::{
    api_access::ApiServers,
    feed,
    model::{Event, Kind, Slice},
    reflect,
    reports::Reports,
    testing::objects::{name, slice},
};
use serde_json::{Value, json};

pub(crate) use testing::patience::LIMIT;

/// What the server answers, one after the other. A script that is over answers with 503.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// A list.
    List(Vec<Value>),
    /// Lines of a watch that begins with a streamed list; `open` as below.
    Stream { lines: Vec<String>, open: bool },
    /// Lines of a watch; `open`: it then stays open in silence, otherwise it ends.
    Watch { lines: Vec<String>, open: bool },
    /// An error.
    Error(StatusCode),
}

/// What is to be answered, and what was asked.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    asked: Arc<Mutex<Vec<Parameters>>>,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Parameters {
    watch: bool,
    send_initial_events: bool,
    pub(crate) resource_version: String,
    pub(crate) label_selector: String,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            watch: false,
            send_initial_events: false,
            resource_version: "none".to_owned(),
            label_selector: String::new(),
        }
    }
}

async fn answer(State(script): State<Script>, Query(parameters): Query<Parameters>) -> Response {
    let mut answers = script.answers.lock().expect("no handler panics");
    let streamed = parameters.send_initial_events;
    let next = match (answers.front(), parameters.watch) {
        (Some(Answer::Stream { .. }), true) if streamed => answers.pop_front(),
        // As an API server without WatchList.
        (Some(Answer::Watch { .. } | Answer::List(_)) | None, true) if streamed => {
            return status(StatusCode::UNPROCESSABLE_ENTITY).into_response();
        }
        (Some(Answer::Watch { .. }), true) | (Some(Answer::List(_)), false) | (Some(Answer::Error(_)), _) => {
            answers.pop_front()
        }
        _ => None,
    };
    script.asked.lock().expect("no handler panics").push(parameters);
    match next {
        Some(Answer::List(items)) => {
            let list = json!({
                "kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1",
                "metadata": {"resourceVersion": "10"}, "items": items,
            });
            list.to_string().into_response()
        }
        Some(Answer::Watch { lines, open } | Answer::Stream { lines, open }) => {
            let lines = lines
                .into_iter()
                .map(|line| Ok::<_, std::io::Error>(Bytes::from(line + "\n")));
            let lines = futures::stream::iter(lines);
            let silence = futures::stream::pending().take(usize::from(open));
            Body::from_stream(lines.chain(silence)).into_response()
        }
        Some(Answer::Error(code)) => status(code).into_response(),
        None => status(StatusCode::SERVICE_UNAVAILABLE).into_response(),
    }
}

fn status(code: StatusCode) -> (StatusCode, String) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16()});
    (code, status.to_string())
}

fn object(name: &str, endpoints: &Value) -> Value {
    json!({
        "metadata": {
            "namespace": "t", "name": name, "resourceVersion": "11",
            "labels": {"kubernetes.io/service-name": "x"},
        },
        "addressType": "IPv4", "ports": [{"port": 80}], "endpoints": endpoints,
    })
}

pub(crate) fn good(name: &str) -> Value {
    object(name, &json!([{"addresses": ["1.1.1.1"]}]))
}

pub(crate) fn line(kind: &str, object: &Value) -> String {
    json!({"type": kind, "object": object}).to_string()
}

pub(crate) fn expired() -> String {
    line(
        "ERROR",
        &json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired"}),
    )
}

/// Events up to and with the one that is waited for.
pub(crate) async fn events(script: Vec<Answer>, last: Event) -> Vec<Event> {
    asked(script, last).await.0
}

/// Events up to and with the one that is waited for, and what was asked, but for refused streams.
pub(crate) async fn asked(script: Vec<Answer>, last: Event) -> (Vec<Event>, Vec<Parameters>) {
    reported(script, last, &Reports::new(None)).await
}

/// The same, with what the watch says to others.
pub(crate) async fn reported(
    script: Vec<Answer>,
    last: Event,
    reports: &Reports,
) -> (Vec<Event>, Vec<Parameters>) {
    let script = Script {
        answers: Arc::new(Mutex::new(script.into())),
        asked: Arc::default(),
    };
    let requests = Arc::clone(&script.asked);
    let path = "/apis/discovery.k8s.io/v1/endpointslices";
    let router = Router::new().route(path, get(answer)).with_state(script);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let config = kube::Config::new(url.parse().expect("a URL"));
    let servers = ApiServers::new(&config, &[], None).await.expect("a server");
    let client = servers.client(&config).expect("a client");
    let (sender, mut receiver) = feed::queue();
    let reflector = tokio::spawn(reflect::reflect::<Slice>(
        client,
        sender,
        reports.clone(),
        StdRng::seed_from_u64(1),
    ));
    let mut seen = Vec::new();
    let collected = tokio::time::timeout(LIMIT, async {
        while let Some(arrival) = receiver.recv().await {
            for event in arrival.events() {
                let is_last = event == last;
                seen.push(event);
                if is_last {
                    return;
                }
            }
        }
    });
    let in_time = collected.await.is_ok();
    assert!(in_time, "no {last:?} after {seen:#?}");
    drop(receiver);
    reflector.await.expect("it ends when nobody listens");
    server.abort();
    let requests = requests.lock().expect("no handler panics").clone();
    (seen, requests)
}

pub(crate) fn applied(name: &str) -> Event {
    Event::SliceApplied(slice(&format!("t/{name}"), "x", &["TCP 80"], &["1.1.1.1"]))
}

pub(crate) fn deleted(text: &str) -> Event {
    Event::SliceDeleted(name(text))
}

pub(crate) const SYNCED: Event = Event::Synced(Kind::EndpointSlice);

#[tokio::test]
async fn malformed_objects_cost_neither_the_list_nor_the_watch_nor_each_other() {
    let mut odd_metadata = good("odd");
    odd_metadata["metadata"]["creationTimestamp"] = json!({"not": "a time"});
    odd_metadata["metadata"]["annotations"] = json!(["not", "a", "map"]);
    odd_metadata["metadata"]["ownerReferences"] = json!("nobody");
    let mut odd_fields = good("fields");
    odd_fields["endpoints"] = json!([{"addresses": ["1.1.1.1"]}, {"addresses": 7}, null]);
    odd_fields["ports"] = json!([{"port": 80}, {"port": "http"}]);
    odd_fields["addressType"] = json!("IPv4");
    let nameless = json!({"metadata": {"namespace": "t", "resourceVersion": "12"}});
    let list = vec![
        json!(null),
        json!("text"),
        odd_metadata,
        nameless.clone(),
        good("plain"),
    ];
    let lines = vec![
        line("ADDED", &nameless),
        line("ADDED", &odd_fields),
        line(
            "BOOKMARK",
            &json!({"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "metadata": {"resourceVersion": "13"}}),
        ),
        line("MODIFIED", &object("plain", &json!(null))),
        line("DELETED", &good("odd")),
    ];
    let seen = events(
        vec![Answer::List(list), Answer::Watch { lines, open: true }],
        deleted("t/odd"),
    )
    .await;
    assert_eq!(
        seen,
        [
            applied("odd"),
            applied("plain"),
            SYNCED,
            applied("fields"),
            Event::SliceApplied(slice("t/plain", "x", &["TCP 80"], &[])),
            deleted("t/odd"),
        ]
    );
}

#[tokio::test]
async fn a_line_that_is_no_json_leads_to_a_list_so_that_its_event_is_not_lost() {
    let lines = vec![
        r#"{"type":"DELETED","object":{{{"#.to_owned(),
        line("ADDED", &good("b")),
    ];
    let script = vec![
        Answer::List(vec![good("a")]),
        Answer::Watch { lines, open: true },
        Answer::List(vec![good("b")]),
    ];
    let seen = events(script, deleted("t/a")).await;
    assert_eq!(seen, [applied("a"), SYNCED, applied("b"), deleted("t/a")]);
}

#[tokio::test]
async fn a_watch_that_is_too_old_is_followed_by_a_list_and_its_gap_by_deletions() {
    let script = vec![
        Answer::List(vec![good("a"), good("b")]),
        Answer::Watch {
            lines: vec![expired()],
            open: false,
        },
        Answer::Error(StatusCode::INTERNAL_SERVER_ERROR),
        Answer::Error(StatusCode::TOO_MANY_REQUESTS),
        Answer::List(vec![good("b")]),
        Answer::Watch {
            lines: vec![line("ADDED", &good("c"))],
            open: true,
        },
    ];
    let seen = events(script, applied("c")).await;
    let expected = [
        applied("a"),
        applied("b"),
        SYNCED,
        deleted("t/a"),
        SYNCED,
        applied("c"),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_watch_that_ends_goes_on_where_it_was_without_a_list() {
    let script = vec![
        Answer::Error(StatusCode::FORBIDDEN),
        Answer::List(vec![]),
        Answer::Watch {
            lines: vec![line("ADDED", &good("a"))],
            open: false,
        },
        Answer::Watch {
            lines: vec![line("ADDED", &good("b"))],
            open: false,
        },
        Answer::Error(StatusCode::SERVICE_UNAVAILABLE),
        Answer::Watch {
            lines: vec![line("DELETED", &good("a"))],
            open: true,
        },
    ];
    let seen = events(script, deleted("t/a")).await;
    assert_eq!(seen, [SYNCED, applied("a"), applied("b"), deleted("t/a")]);
}
