//! Slow and truncated responses.

use std::{io, time::Duration};

use bytes::Bytes;
use futures::Stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    Response,
    body::{Body as _, Frame},
    header::{CONTENT_LENGTH, HeaderValue},
};

use super::{Client, Fault, Faults};
use crate::respond::Body;

/// Interval between the pieces of a slow body.
const TICK: Duration = Duration::from_millis(100);

/// Applies faults to a response's body, including those that begin while it is sent.
///
/// A body that is complete already is left unchanged if no fault is active.
pub(crate) fn apply_to_body(faults: &Faults, client: &Client, response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    let whole = body.size_hint().exact();
    if let Some(length) = whole {
        if next(faults, client, 0) == Next::All {
            return Response::from_parts(head, body);
        }
        // With a length, the client recognizes a truncated body.
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    let sending = Sending {
        faults: faults.clone(),
        client: client.clone(),
        body,
        piece: Bytes::new(),
        sent: 0,
        broken: false,
    };
    Response::from_parts(head, StreamBody::new(frames(sending)).boxed_unsync())
}

/// How much may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    All,
    AtMost(usize),
    /// At most this much, after a tick.
    Slowly(usize),
    Break,
}

fn next(faults: &Faults, client: &Client, sent: usize) -> Next {
    let mut next = Next::All;
    for active in faults.active_for(client) {
        match active.fault {
            Fault::TruncateBodies { after } if sent >= after => return Next::Break,
            Fault::TruncateBodies { after } => return Next::AtMost(after - sent),
            Fault::SlowBodies { bytes_per_second } => {
                let ticks = u32::try_from(Duration::from_secs(1).as_millis() / TICK.as_millis());
                let piece = bytes_per_second / ticks.unwrap_or(1);
                next = Next::Slowly(usize::try_from(piece).unwrap_or(usize::MAX));
            }
            _ => {}
        }
    }
    next
}

/// A response that is being sent. It holds one piece of the body.
struct Sending {
    faults: Faults,
    client: Client,
    body: Body,
    piece: Bytes,
    sent: usize,
    broken: bool,
}

fn frames(sending: Sending) -> impl Stream<Item = Result<Frame<Bytes>, io::Error>> + Send {
    futures::stream::unfold(sending, |mut sending| async move {
        let frame = sending.next().await?;
        Some((frame, sending))
    })
}

impl Sending {
    async fn next(&mut self) -> Option<Result<Frame<Bytes>, io::Error>> {
        if self.broken {
            return None;
        }
        while self.piece.is_empty() {
            match self.body.frame().await? {
                Ok(frame) => match frame.into_data() {
                    Ok(data) => self.piece = data,
                    Err(other) => return Some(Ok(other)),
                },
                Err(error) => {
                    self.broken = true;
                    return Some(Err(error));
                }
            }
        }
        let most = match next(&self.faults, &self.client, self.sent) {
            Next::All => self.piece.len(),
            Next::AtMost(most) => most,
            Next::Slowly(most) => {
                tokio::time::sleep(TICK).await;
                most
            }
            Next::Break => {
                self.broken = true;
                // The connection still buffers earlier data, which an error would not flush.
                tokio::time::sleep(TICK).await;
                return Some(Err(broken()));
            }
        };
        let data = self.piece.split_to(most.min(self.piece.len()));
        self.sent += data.len();
        Some(Ok(Frame::data(data)))
    }
}

/// The error that ends the connection in the middle of a response.
pub(crate) fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "a fault ended this answer")
}
