//! A watch with a cut connection is treated as a quiet one, or so are all watches once the process has stood still.
//!
//! The bugs of an agent whose client does not detect that the server is gone, or that its timers were late: it waits
//! for events that will not be sent. Its maps stay unchanged, so nothing fails until the API changes.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, Uri};
use hyper::body::{Frame, SizeHint};
use kube::client::{Body, Client};
use tower::service_fn;

/// From one look at the time to the next, and from when on the process has stood still in between.
const TICK: Duration = Duration::from_secs(1);
const STOOD_STILL: Duration = Duration::from_secs(8);

/// A client that delivers no watch event after the first cut of a watch; other requests work.
pub fn unnoticing(client: Client) -> Client {
    troubled(client, Arc::default(), || true)
}

/// A client that calls `act` with each cut of a watch, and goes on.
pub fn acting(client: Client, act: impl Fn() + Send + Sync + 'static) -> Client {
    troubled(client, Arc::default(), move || {
        act();
        false
    })
}

/// A client that delivers no watch event once its process has stood still for several seconds.
pub fn mute_after_stop(client: Client) -> Client {
    let is_mute = Arc::new(AtomicBool::new(false));
    let watched = Arc::downgrade(&is_mute);
    thread::spawn(move || {
        let mut before = Instant::now();
        while let Some(is_mute) = watched.upgrade() {
            thread::sleep(TICK);
            is_mute.fetch_or(before.elapsed() > STOOD_STILL, Ordering::Relaxed);
            before = Instant::now();
        }
    });
    troubled(client, is_mute, || false)
}

/// Watches deliver nothing while they are mute, which they are from a cut on, if `mutes` says so.
fn troubled(
    client: Client,
    is_mute: Arc<AtomicBool>,
    mutes: impl Fn() -> bool + Send + Sync + 'static,
) -> Client {
    let namespace = client.default_namespace().to_owned();
    let mutes: Arc<dyn Fn() -> bool + Send + Sync> = Arc::new(mutes);
    let service = service_fn(move |request: Request<Body>| {
        let trouble = is_watch(request.uri()).then(|| Trouble {
            is_mute: Arc::clone(&is_mute),
            mutes: Arc::clone(&mutes),
        });
        let client = client.clone();
        async move {
            let response = client.send(request).await?;
            Ok::<_, kube::Error>(response.map(|body| Watched { body, trouble }))
        }
    });
    Client::new(service, namespace)
}

/// What becomes of watches.
struct Trouble {
    is_mute: Arc<AtomicBool>,
    mutes: Arc<dyn Fn() -> bool + Send + Sync>,
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
    /// `None` for other responses.
    trouble: Option<Trouble>,
}

impl hyper::body::Body for Watched {
    type Data = Bytes;
    type Error = <Body as hyper::body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Self { body, trouble } = &mut *self;
        let Some(Trouble { is_mute, mutes }) = trouble else {
            return Pin::new(body).poll_frame(context);
        };
        if is_mute.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        match ready!(Pin::new(body).poll_frame(context)) {
            Some(Err(_)) if mutes() => {
                is_mute.store(true, Ordering::Relaxed);
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
