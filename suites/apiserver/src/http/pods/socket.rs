//! The WebSocket of `exec`: its handshake, and the channels in its messages (`v5.channel.k8s.io`, KEP-4006).
//!
//! Every message is binary; its first byte names the channel.

use hyper::{
    Response, StatusCode,
    header::{
        CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
        SEC_WEBSOCKET_VERSION, UPGRADE,
    },
    http::HeaderMap,
    upgrade::Upgraded,
};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};

use crate::{
    respond::{self, Body},
    status::Status,
};

/// From the client: standard input.
pub(super) const STDIN: u8 = 0;
/// To the client: standard output.
pub(super) const STDOUT: u8 = 1;
/// To the client: standard error.
pub(super) const STDERR: u8 = 2;
/// To the client: a Status, at the end.
pub(super) const ERROR: u8 = 3;
/// From the client, since v5: the channel in the next byte has ended.
pub(super) const CLOSE: u8 = 255;

/// What this server speaks, best first; v4 can't end its standard input.
const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
/// Longest message; kubectl sends pieces of 32 KiB.
const LONGEST_MESSAGE: usize = 1 << 20;

/// The socket of one session.
pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// The answer to a handshake.
///
/// # Errors
/// 400 if the client wants no WebSocket, or speaks none of the protocols.
pub(super) fn accept(headers: &HeaderMap) -> Result<Response<Body>, Status> {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
            .unwrap_or_default()
    };
    let is_websocket = text(UPGRADE).eq_ignore_ascii_case("websocket") && text(SEC_WEBSOCKET_VERSION) == "13";
    let key = headers
        .get(SEC_WEBSOCKET_KEY)
        .filter(|_| is_websocket)
        .ok_or_else(|| {
            Status::bad_request("expected an upgrade to a WebSocket; this server does not speak SPDY")
        })?;
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter();
    let offered: Vec<&str> = offered
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim))
        .collect();
    let protocol = PROTOCOLS.into_iter().find(|protocol| offered.contains(protocol));
    let protocol = protocol.ok_or_else(|| {
        Status::bad_request(format!(
            "expected one of the protocols {PROTOCOLS:?}, found {offered:?}"
        ))
    })?;
    let mut response = respond::bytes(200, bytes::Bytes::new());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answer = HeaderValue::from_str(&derive_accept_key(key.as_bytes())).map_err(Status::internal)?;
    let headers = response.headers_mut();
    headers.clear();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, answer);
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    Ok(response)
}

/// The socket behind an upgraded connection.
pub(super) async fn open(upgraded: Upgraded) -> Socket {
    let config = WebSocketConfig::default().max_message_size(Some(LONGEST_MESSAGE));
    WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await
}
