//! Responses: JSON, Status, text, streams.

use std::io;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Response, StatusCode,
    body::Frame,
    header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING},
};
use serde_json::Value;

use crate::status::Status;

/// The body of a response. An error ends the connection.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache, private");

/// JSON that is serialized already.
pub(crate) fn bytes(code: u16, json: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(json).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response.headers_mut().insert(CACHE_CONTROL, NO_CACHE);
    response
}

/// JSON.
pub(crate) fn json(code: u16, value: &Value) -> Response<Body> {
    bytes(code, Bytes::from(value.to_string()))
}

/// A Status.
pub(crate) fn failure(status: &Status) -> Response<Body> {
    let object = status.to_json();
    let mut response = json(status.code().as_u16(), &object);
    if let Some(seconds) = object["details"]["retryAfterSeconds"].as_u64() {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Plain text.
pub(crate) fn text(text: &'static str) -> Response<Body> {
    let mut response = bytes(200, Bytes::from_static(text.as_bytes()));
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

/// A stream of chunks, sent as fast as the client reads.
pub(crate) fn stream(chunks: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Response<Body> {
    let frames = chunks.map(|chunk| chunk.map(Frame::data));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response.headers_mut().insert(CACHE_CONTROL, NO_CACHE);
    response
}

/// Adds warnings, which kubectl prints (RFC 7234, code 299).
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for text in warnings {
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
}
