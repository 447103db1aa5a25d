//! The mutant's requests do not select by the label, and its answers do not contain it, however they are split.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::stream;
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use kube::client::{Body, Client};
use mutants::proxy_name_unread::unread;
use tower::service_fn;

const EVENTS: &str = concat!(
    r#"{"labels":{"service.kubernetes.io/service-proxy-name":"a"}}"#,
    "\n",
    r#"{"labels":{"kubernetes.io/service-name":"b"},"and":"service.kubernetes.io/service-proxy-name"}"#,
);

#[tokio::test]
async fn the_label_is_neither_asked_for_nor_seen() {
    for length in [1, 7, EVENTS.len()] {
        let asked = Arc::new(Mutex::new(String::new()));
        let noted = Arc::clone(&asked);
        let server = service_fn(move |request: Request<Body>| {
            *noted.lock().unwrap() = request.uri().to_string();
            let pieces: Vec<_> = EVENTS
                .as_bytes()
                .chunks(length)
                .map(|piece| Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(piece))))
                .collect();
            async { Ok::<_, std::io::Error>(Response::new(StreamBody::new(stream::iter(pieces)))) }
        });
        let client = unread(Client::new(server, "default"));
        let request = Request::get(concat!(
            "/api/v1/services?labelSelector=%21service.kubernetes.io%2Fservice-proxy-name%2C",
            "%21service.kubernetes.io%2Fheadless&watch=true"
        ));
        let request = request.body(Body::empty()).expect("a request");
        let answer = client.send(request).await.expect("an answer").into_body();
        let bytes = answer.collect().await.expect("all of it").to_bytes();
        let expected = EVENTS.replace("proxy-name", "proxy-none");
        assert_eq!(String::from_utf8_lossy(&bytes), expected, "in pieces of {length}");
        assert_eq!(
            *asked.lock().unwrap(),
            "/api/v1/services?labelSelector=%21service.kubernetes.io%2Fheadless&watch=true"
        );
    }
}
