//! The mutant gets no event after the cut of a watch; the production agent continues.

use std::{
    collections::BTreeSet,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use kube::client::{Body, Client};
use mutants::cut_unnoticed::{acting, mute_after_stop, unnoticing};
use rand::{SeedableRng as _, rngs::StdRng};
use reference_agent::{
    feed::queue,
    model::{Event, Slice},
    reflect::{STREAM_LIMIT, WATCH_LIMIT, reflect},
    reports::Reports,
};
use serde_json::{Value, json};
use tower::service_fn;

/// Longer than any of the reflector's limits.
const LONG: Duration = WATCH_LIMIT.saturating_add(STREAM_LIMIT).saturating_mul(5);

type Lines = Pin<Box<dyn Stream<Item = io::Result<Frame<Bytes>>> + Send>>;

/// How a watch ends after its last event.
#[derive(Clone, Copy)]
enum End {
    Regular,
    Cut,
    Never,
}

fn lines(lines: &[Value], end: End) -> Lines {
    let body: Vec<_> = lines
        .iter()
        .map(|line| Ok(Frame::data(Bytes::from(format!("{line}\n")))))
        .collect();
    let end: Lines = match end {
        End::Regular => stream::empty().boxed(),
        End::Cut => stream::once(async { Err(io::ErrorKind::ConnectionReset.into()) }).boxed(),
        End::Never => stream::pending().boxed(),
    };
    stream::iter(body).chain(end).boxed()
}

fn line(kind: &str, name: &str, version: &str) -> Value {
    json!({ "type": kind, "object": {
        "metadata": {
            "namespace": "t", "name": name, "resourceVersion": version,
            "labels": { "kubernetes.io/service-name": "x" },
        },
        "addressType": "IPv4", "ports": [{ "port": 80 }], "endpoints": [{ "addresses": ["10.0.0.1"] }],
    } })
}

/// An API server: a streaming list of `first`, whose watch ends in this way, then a watch with `second` that stays
/// open.
fn server(end: End) -> Client {
    let watches = Arc::new(AtomicUsize::new(0));
    let answer = move |request: Request<Body>| {
        let body = match (request.uri().query(), watches.fetch_add(1, Ordering::Relaxed)) {
            (Some(query), 0) if query.contains("sendInitialEvents=true") => {
                let listed = json!({ "type": "BOOKMARK", "object": {
                    "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "metadata": {
                    "resourceVersion": "10", "annotations": { "k8s.io/initial-events-end": "true" },
                } } });
                let moved = line("MODIFIED", "first", "11");
                lines(&[line("ADDED", "first", "9"), listed, moved], end)
            }
            (Some(query), 1) if query.contains("resourceVersion=11") => {
                lines(&[line("ADDED", "second", "12")], End::Never)
            }
            _ => lines(&[], End::Never),
        };
        async { Ok::<_, io::Error>(Response::new(StreamBody::new(body))) }
    };
    Client::new(service_fn(answer), "default")
}

/// The slices of which an agent has got events after a long time.
async fn received(client: Client) -> BTreeSet<String> {
    let (sender, mut arrivals) = queue();
    let reflector = tokio::spawn(reflect::<Slice>(
        client,
        sender,
        Reports::new(None),
        StdRng::seed_from_u64(1),
    ));
    let mut received = BTreeSet::new();
    let receive = async {
        while let Some(arrival) = arrivals.recv().await {
            for event in arrival.events() {
                if let Event::SliceApplied(slice) = event {
                    received.insert(slice.name.to_string());
                }
            }
        }
    };
    let ended = tokio::time::timeout(LONG, receive).await;
    assert!(ended.is_err(), "the reflector has ended");
    reflector.abort();
    received
}

#[tokio::test(start_paused = true)]
async fn after_a_watch_was_cut_no_watch_brings_anything() {
    assert_eq!(
        received(unnoticing(server(End::Cut))).await,
        ["t/first".to_owned()].into()
    );
    let both: BTreeSet<String> = ["t/first".to_owned(), "t/second".to_owned()].into();
    assert_eq!(received(server(End::Cut)).await, both);
}

#[tokio::test(start_paused = true)]
async fn as_long_as_none_was_cut_it_is_the_production_agent() {
    let both: BTreeSet<String> = ["t/first".to_owned(), "t/second".to_owned()].into();
    assert_eq!(received(unnoticing(server(End::Regular))).await, both);
    assert_eq!(received(server(End::Regular)).await, both);
}

#[tokio::test(start_paused = true)]
async fn what_acts_on_a_cut_goes_on_and_acts_on_cuts_alone() {
    for (end, expected) in [(End::Cut, 1), (End::Regular, 0)] {
        let acted = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&acted);
        let client = acting(server(end), move || _ = counted.fetch_add(1, Ordering::Relaxed));
        assert_eq!(received(client).await.len(), 2);
        assert_eq!(acted.load(Ordering::Relaxed), expected);
    }
}

/// That it is mute after a stop, the case shows: a test can't stop itself.
#[tokio::test(start_paused = true)]
async fn as_long_as_it_was_not_stopped_it_is_the_production_agent() {
    assert_eq!(received(mute_after_stop(server(End::Cut))).await.len(), 2);
}
