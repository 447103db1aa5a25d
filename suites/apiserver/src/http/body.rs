//! Request bodies, up to a limit.

use std::{error::Error, io, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited, combinators::UnsyncBoxBody};
use hyper::{Request, body::Body};
use serde_json::Value;

use crate::{protobuf, status::Status};

/// The body of a request, from wherever it comes.
pub(crate) type Sent = UnsyncBoxBody<Bytes, io::Error>;

/// Limit for receiving a body. Clients are in the same lab.
const SLOWEST: Duration = Duration::from_secs(30);

/// A request, however its body comes.
pub(crate) fn sent<B>(request: Request<B>) -> Request<Sent>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    request.map(|body| body.map_err(io::Error::other).boxed_unsync())
}

/// Reads a whole body.
///
/// # Errors
/// 413 beyond the limit (at once, where its length is declared), 408 if it is slow, 400 if it breaks off.
pub(super) async fn read(body: Sent, limit: usize) -> Result<Bytes, Status> {
    if body.size_hint().lower() > u64::try_from(limit).unwrap_or(u64::MAX) {
        return Err(Status::too_large(limit));
    }
    let collecting = tokio::time::timeout(SLOWEST, Limited::new(body, limit).collect());
    match collecting.await.map_err(|_| Status::slow_body(SLOWEST))? {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Status::too_large(limit)),
        Err(error) => Err(Status::bad_request(format!(
            "failed to read the request's body: {error}"
        ))),
    }
}

/// The media types of objects that are sent.
const ACCEPTED: &str = "application/json, application/vnd.kubernetes.protobuf";

/// Parses a body.
///
/// # Errors
/// 400 if it is not what it claims to be, 415 if it claims to be something else.
pub(super) fn parse(media_type: &str, sent: &[u8], what: &str) -> Result<Value, Status> {
    let unrecognized = |why: String| {
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {what}): {why}"
        ))
    };
    match media_type {
        "" | "application/json" | "*/*" => serde_json::from_slice(sent)
            .map_err(|error| unrecognized(format!("couldn't get version/kind; json parse error: {error}"))),
        "application/vnd.kubernetes.protobuf" => protobuf::decode(sent).map_err(unrecognized),
        other => Err(Status::unsupported_media_type(other, ACCEPTED)),
    }
}
