//! The agent ignores the label `service.kubernetes.io/service-proxy-name`: it serves Services of other proxies.
//!
//! Requests do not select by the label, and answers of the API do not contain it.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http::{Request, Uri};
use hyper::body::Frame;
use kube::client::{Body, Client};
use tower::service_fn;

/// The agent's selector of objects without the label, as part of a request.
const SELECTED: &str = "%21service.kubernetes.io%2Fservice-proxy-name%2C";
const LABEL: &[u8] = b"service.kubernetes.io/service-proxy-name";
/// An unused label of the same length.
const UNKNOWN: &[u8] = b"service.kubernetes.io/service-proxy-none";

type Piece = Result<Frame<Bytes>, <Body as hyper::body::Body>::Error>;

/// A client that ignores the label.
pub fn unread(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |mut request: Request<Body>| {
        let client = client.clone();
        async move {
            *request.uri_mut() = without_selector(request.uri());
            let response = client.send(request).await?;
            Ok::<_, kube::Error>(response.map(|body| Unlabelled {
                body,
                line: BytesMut::new(),
            }))
        }
    });
    Client::new(service, namespace)
}

fn without_selector(uri: &Uri) -> Uri {
    uri.to_string()
        .replace(SELECTED, "")
        .parse()
        .unwrap_or_else(|_| uri.clone())
}

/// An answer without the label. It is changed line by line, because each event of a watch is one line.
struct Unlabelled {
    body: Body,
    /// The received part of the last line.
    line: BytesMut,
}

impl hyper::body::Body for Unlabelled {
    type Data = Bytes;
    type Error = <Body as hyper::body::Body>::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Piece>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None if self.line.is_empty() => return Poll::Ready(None),
                None => {
                    let rest = self.line.split();
                    return Poll::Ready(Some(Ok(Frame::data(unlabelled(rest)))));
                }
            };
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(other) => return Poll::Ready(Some(Ok(other))),
            };
            self.line.extend_from_slice(&data);
            if let Some(end) = self.line.iter().rposition(|byte| *byte == b'\n') {
                let lines = self.line.split_to(end + 1);
                return Poll::Ready(Some(Ok(Frame::data(unlabelled(lines)))));
            }
        }
    }
}

fn unlabelled(mut lines: BytesMut) -> Bytes {
    let mut from = 0;
    while let Some(at) = lines[from..].windows(LABEL.len()).position(|part| part == LABEL) {
        let end = from + at + LABEL.len();
        lines[from + at..end].copy_from_slice(UNKNOWN);
        from = end;
    }
    lines.freeze()
}
