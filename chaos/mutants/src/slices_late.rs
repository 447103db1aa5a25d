//! Watch events of EndpointSlices are late: within the catalogue's T_ep, which is permitted, or after it.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Uri};
use hyper::body::{Body as _, Frame};
use kube::client::{Body, Client};
use tokio::{
    sync::mpsc::{Receiver, channel},
    time::{Instant, sleep_until},
};
use tower::service_fn;

/// Limit of delayed pieces of a watch; then the sender waits. A piece is one event or several.
const UNDER_WAY: usize = 65_536;

type Piece = Result<Frame<Bytes>, <Body as hyper::body::Body>::Error>;

/// A client that delivers watch events of EndpointSlices with this delay.
pub fn late(client: Client, delay: Duration) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let is_late = watches_slices(request.uri());
        let client = client.clone();
        async move {
            let response = client.send(request).await?;
            Ok::<_, kube::Error>(response.map(|body| match is_late {
                true => Either::Late(delayed(body, delay)),
                false => Either::InTime(body),
            }))
        }
    });
    Client::new(service, namespace)
}

/// Whether a request is a watch of EndpointSlices, including streaming lists.
fn watches_slices(uri: &Uri) -> bool {
    let mut query = uri.query().unwrap_or_default().split('&');
    uri.path().ends_with("/endpointslices")
        && query.any(|one| matches!(one, "watch" | "watch=1" | "watch=true"))
}

/// The response of an API server.
enum Either {
    InTime(Body),
    Late(Late),
}

struct Late {
    pieces: Receiver<(Instant, Piece)>,
    /// The next piece, and when to deliver it.
    next: Option<(Pin<Box<tokio::time::Sleep>>, Piece)>,
}

/// Reads on while earlier pieces are delayed.
fn delayed(mut body: Body, delay: Duration) -> Late {
    let (sender, pieces) = channel(UNDER_WAY);
    tokio::spawn(async move {
        while let Some(piece) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
        {
            if sender.send((Instant::now() + delay, piece)).await.is_err() {
                break;
            }
        }
    });
    Late { pieces, next: None }
}

impl hyper::body::Body for Either {
    type Data = Bytes;
    type Error = <Body as hyper::body::Body>::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Piece>> {
        let late = match &mut *self {
            Self::InTime(body) => return Pin::new(body).poll_frame(context),
            Self::Late(late) => late,
        };
        if late.next.is_none() {
            match late.pieces.poll_recv(context) {
                Poll::Ready(Some((at, piece))) => late.next = Some((Box::pin(sleep_until(at)), piece)),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
        let Some((sleep, _)) = &mut late.next else {
            return Poll::Pending;
        };
        match sleep.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(late.next.take().map(|(_, piece)| piece)),
            Poll::Pending => Poll::Pending,
        }
    }
}
