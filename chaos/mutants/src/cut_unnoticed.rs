//! A watch whose connection is cut is taken for one that is quiet.
//!
//! What an agent does whose client never learns that nobody is at the other end any more, and never asks: it waits for events
//! that nobody will send. Its maps stay as they are, so nothing fails until something changes.

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

/// A client that brings nothing of any watch any more once one was cut; what is asked for otherwise it brings.
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

/// Whether a request is for a watch, streamed lists included.
fn is_watch(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    query
        .split('&')
        .any(|one| matches!(one, "watch" | "watch=1" | "watch=true"))
}

/// What an API server answers.
struct Watched {
    body: Body,
    /// Whether any watch was cut; `None`: this is none.
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
