//! A watch with a cut connection is treated as a quiet one.
//!
//! The bug of an agent whose client does not detect that the server is gone: it waits for events that will not be sent.
//! Its maps stay unchanged, so nothing fails until the API changes.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Uri};
use hyper::body::{Frame, SizeHint};
use kube::client::{Body, Client};
use tower::service_fn;

/// A client that delivers no watch event after the first cut of a watch; other requests work.
pub fn unnoticing(client: Client) -> Client {
    let cut = Arc::new(AtomicBool::new(false));
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let cut = is_watch(request.uri()).then(|| Arc::clone(&cut));
        let client = client.clone();
        async move {
            let response = client.send(request).await?;
            Ok::<_, kube::Error>(response.map(|body| Watched { body, cut }))
        }
    });
    Client::new(service, namespace)
}

/// Whether a request is a watch, including streaming lists.
fn is_watch(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    query
        .split('&')
        .any(|one| matches!(one, "watch" | "watch=1" | "watch=true"))
}

/// The response of an API server.
struct Watched {
    body: Body,
    /// Whether any watch was cut; `None` for other responses.
    cut: Option<Arc<AtomicBool>>,
}

impl hyper::body::Body for Watched {
    type Data = Bytes;
    type Error = <Body as hyper::body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Self { body, cut } = &mut *self;
        let Some(cut) = cut else {
            return Pin::new(body).poll_frame(context);
        };
        if cut.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        match ready!(Pin::new(body).poll_frame(context)) {
            Some(Err(_)) => {
                cut.store(true, Ordering::Relaxed);
                Poll::Pending
            }
            next => Poll::Ready(next),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
