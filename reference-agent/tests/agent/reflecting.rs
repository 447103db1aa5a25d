//! Watches against an API server that says what it is told to, malformed objects and broken lines included.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
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
use reference_agent::{
    agent::{self, Arrival},
    model::{Event, Kind, Slice},
    own::ApiServers,
    reflect,
    reports::Reports,
    testing::objects::{name, slice},
};
use serde_json::{Value, json};

/// Nothing here takes longer.
const LIMIT: Duration = Duration::from_secs(30);

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
    let (sender, mut receiver) = agent::queue();
    let reflector = tokio::spawn(reflect::reflect::<Slice>(client, sender, reports.clone()));
    let mut seen = Vec::new();
    let collected = tokio::time::timeout(LIMIT, async {
        while let Some(Arrival { event, .. }) = receiver.recv().await {
            let done = event == last;
            seen.push(event);
            if done {
                break;
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
        applied("b"),
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

#[rstest::rstest]
#[case::too_busy(StatusCode::TOO_MANY_REQUESTS)]
#[case::not_ready(StatusCode::SERVICE_UNAVAILABLE)]
#[case::too_slow(StatusCode::GATEWAY_TIMEOUT)]
#[tokio::test]
async fn each_answer_that_is_an_error_is_counted_and_tried_again_by_the_watch_alone(#[case] code: StatusCode) {
    let refused = std::iter::repeat_n(Answer::Error(code), 4);
    let list = [
        Answer::List(vec![]),
        Answer::Watch {
            lines: vec![line("ADDED", &good("a"))],
            open: true,
        },
    ];
    let reports = Reports::new(None);
    let (seen, _) = reported(refused.chain(list).collect(), applied("a"), &reports).await;
    assert_eq!(seen, [SYNCED, applied("a")]);
    let restarts = &reports.metrics.watch_restarts;
    // Four refusals, and that of the streamed list.
    assert_eq!(restarts.at(["endpointslice", "refused"]).get(), 5);
}

#[tokio::test]
async fn a_watch_that_ends_at_once_and_brings_nothing_has_failed_and_is_not_opened_again_at_once() {
    let nothing = Answer::Watch {
        lines: Vec::new(),
        open: false,
    };
    let last = Answer::Watch {
        lines: vec![line("ADDED", &good("a"))],
        open: true,
    };
    let mut script = vec![Answer::List(vec![])];
    script.extend(std::iter::repeat_n(nothing, 4));
    script.push(last);
    let reports = Reports::new(None);
    let begin = Instant::now();
    let (seen, _) = reported(script, applied("a"), &reports).await;
    assert_eq!(seen, [SYNCED, applied("a")], "from where it was, without a list");
    let restarts = &reports.metrics.watch_restarts;
    assert_eq!(restarts.at(["endpointslice", "broken"]).get(), 4);
    // Each pause is twice the one before; the shorter half of each at least.
    assert!(begin.elapsed() >= reflect::RETRY_FIRST * (1 + 2 + 4 + 8) / 2);
}

/// Looks until there is something.
async fn until<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(seen) = look() {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let looked = tokio::time::timeout(LIMIT, looking).await;
    looked.unwrap_or_else(|_| panic!("{what}: not within {LIMIT:?}"))
}

/// A list, failures, and at last what goes on.
fn interrupted_by(failure: &Answer) -> Vec<Answer> {
    let mut script = vec![Answer::List(vec![])];
    script.extend(std::iter::repeat_n(failure.clone(), 5));
    script.push(Answer::Watch {
        lines: vec![line("ADDED", &good("a")), line("ADDED", &good("b"))],
        open: true,
    });
    script
}

#[tokio::test]
async fn of_what_was_listed_a_watch_that_is_refused_is_known_by_its_reason_until_something_comes() {
    let reports = Reports::new(None);
    let unheard = |now| reports.board.unheard(Kind::EndpointSlice, now);
    let told = until("the refusal", || {
        let now = Instant::now();
        let told = unheard(now + reflect::HEARD_LIMIT + Duration::from_secs(1))?;
        (told.contains("403") && unheard(now).is_none()).then_some((now, told))
    });
    let script = interrupted_by(&Answer::Error(StatusCode::FORBIDDEN));
    let ((seen, _), (refused, told)) = tokio::join!(reported(script, applied("b"), &reports), told);
    assert_eq!(seen, [SYNCED, applied("a"), applied("b")]);
    let expected = "changes of endpointslices have not come since 90 s, and are served as last known: the request failed: ";
    assert!(told.starts_with(expected), "{told}");
    assert_eq!(
        unheard(refused + reflect::HEARD_LIMIT),
        None,
        "the event was heard after the refusal"
    );
}

#[tokio::test]
async fn a_server_that_accepts_watches_and_fails_each_is_heard_once() {
    let reports = Reports::new(None);
    let broken = || reports.metrics.watch_restarts.at(["endpointslice", "broken"]).get();
    let failing = async {
        let first = until("a failure", || (broken() >= 1).then(Instant::now)).await;
        until("more of them", || (broken() >= 3).then_some(())).await;
        let later = first + reflect::HEARD_LIMIT + Duration::from_millis(1);
        reports.board.unheard(Kind::EndpointSlice, later)
    };
    let status = json!({"kind": "Status", "status": "Failure", "code": 500, "message": "no leader"});
    let script = interrupted_by(&Answer::Watch {
        lines: vec![line("ERROR", &status)],
        open: false,
    });
    let ((seen, _), told) = tokio::join!(reported(script, applied("b"), &reports), failing);
    assert_eq!(seen, [SYNCED, applied("a"), applied("b")]);
    let told = told.expect("nothing was heard after the first failure");
    assert!(told.ends_with("no leader"), "{told}");
}
