//! The mutant's events of EndpointSlices are late by the given delay, and all others are in time.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use kube::client::{Body, Client};
use mutants::slices_late::late;
use rstest::rstest;
use tokio::time::Instant;
use tower::service_fn;

const DELAY: Duration = Duration::from_secs(40);
/// Interval of events.
const APART: Duration = Duration::from_secs(1);

#[rstest]
#[case::slices("/apis/discovery.k8s.io/v1/endpointslices?watch=true", DELAY)]
#[case::slices_that_are_listed("/apis/discovery.k8s.io/v1/endpointslices?limit=500", Duration::ZERO)]
#[case::services("/api/v1/services?watch=1", Duration::ZERO)]
#[tokio::test(start_paused = true)]
async fn watches_of_slices_are_late_and_keep_their_pace(#[case] uri: &str, #[case] delay: Duration) {
    let server = service_fn(|_: Request<Body>| async {
        let events = stream::iter(["a", "b"]).then(|event| async move {
            tokio::time::sleep(APART).await;
            Ok::<_, std::io::Error>(Frame::data(Bytes::from(event)))
        });
        Ok::<_, std::io::Error>(Response::new(StreamBody::new(Box::pin(events))))
    });
    let client = late(Client::new(server, "default"), DELAY);
    let began = Instant::now();
    let request = Request::get(uri).body(Body::empty()).expect("a request");
    let mut body = client.send(request).await.expect("an answer").into_body();
    let mut received = Vec::new();
    while let Some(frame) = body.frame().await {
        let data = frame.expect("a piece").into_data().expect("data");
        received.push((data, began.elapsed()));
    }
    let at = |event: &'static str, after| (Bytes::from(event), delay + after);
    assert_eq!(received, [at("a", APART), at("b", 2 * APART)]);
}
