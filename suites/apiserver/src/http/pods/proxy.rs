//! `pods/proxy`: forwards HTTP to a pod's port (`apimachinery/pkg/util/proxy`).

use std::{io, time::Duration};

use http_body_util::{BodyExt, Limited};
use hyper::{
    Request, Response, Uri,
    client::conn::http1,
    header::{AUTHORIZATION, CONNECTION, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE},
    http::HeaderMap,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;

use super::{Api, PodRequest, on_node};
use crate::{http::Sent, kubelet::KubeletError, respond::Body, status::Status};

/// Limit for the beginning of a pod's response.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Headers of a single connection.
const HOP_BY_HOP: [HeaderName; 5] = [
    CONNECTION,
    UPGRADE,
    TRANSFER_ENCODING,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

impl Api {
    pub(super) async fn proxy(
        &self,
        asked: &PodRequest,
        path: &str,
        request: Request<Sent>,
    ) -> Result<Response<Body>, Status> {
        let (name, port) = name_and_port(&asked.name)?;
        let pod = self.pod(&asked.namespace, name)?;
        let address = pod.value["status"]["podIP"].as_str().unwrap_or_default();
        let on_node = on_node(&pod.value).filter(|_| !address.is_empty());
        let on_node = on_node.ok_or_else(|| Status::bad_request("address not allowed"))?;
        let port = port_number(port, &pod.value)?;
        let authority = authority(address, port);
        let kubelet = self.kubelet(&on_node)?;
        let connection = kubelet
            .connect(&on_node, port)
            .await
            .map_err(|error| unreachable(&error))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(connection))
            .await
            .map_err(|e| broken(&e))?;
        let request = passed_on(request, path, &authority, self.store.config().body_bytes)?;
        // It lives as long as the answer's body is read, and ends with its server.
        let ended = self.ended.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = ended.cancelled() => {}
                // If the connection breaks, reading the response's body fails too.
                _ = connection => {}
            }
        });
        let answer = tokio::time::timeout(ANSWER_LIMIT, sender.send_request(request)).await;
        let answer = answer.map_err(|_| Status::unreachable_service("the pod does not answer"))?;
        let (mut head, body) = answer.map_err(|error| broken(&error))?.into_parts();
        drop_hop_by_hop(&mut head.headers);
        Ok(Response::from_parts(
            head,
            body.map_err(io::Error::other).boxed_unsync(),
        ))
    }
}

/// `[scheme:]name[:port]`; only plain HTTP is passed on.
fn name_and_port(asked: &str) -> Result<(&str, &str), Status> {
    let invalid = || Status::bad_request(format!("invalid pod request {asked:?}"));
    let parts: Vec<&str> = asked.split(':').collect();
    match parts.as_slice() {
        [name] => Ok((name, "")),
        [name, port] | ["" | "http", name, port] => Ok((name, port)),
        ["https", ..] => Err(Status::bad_request(
            "expected the scheme http; this server passes no TLS on",
        )),
        _ => Err(invalid()),
    }
}

/// The port, or the first that a container declares.
fn port_number(asked: &str, pod: &Value) -> Result<u16, Status> {
    if !asked.is_empty() {
        return asked
            .parse()
            .map_err(|_| Status::bad_request(format!("expected a port number, found {asked:?}")));
    }
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let declared = containers.map(|container| &container["ports"][0]["containerPort"]);
    let first = declared.filter_map(Value::as_u64).next();
    Ok(first.and_then(|port| u16::try_from(port).ok()).unwrap_or(80))
}

fn authority(address: &str, port: u16) -> String {
    if address.contains(':') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    }
}

fn passed_on(
    request: Request<Sent>,
    path: &str,
    authority: &str,
    body_bytes: usize,
) -> Result<Request<Limited<Sent>>, Status> {
    let query = request
        .uri()
        .query()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    let uri: Uri = format!("/{path}{query}")
        .parse()
        .map_err(|error| Status::bad_request(format!("expected a path, found {path:?}: {error}")))?;
    let (mut head, body) = request.into_parts();
    head.uri = uri;
    head.version = hyper::Version::HTTP_11;
    drop_hop_by_hop(&mut head.headers);
    // The API's own credentials are not the pod's business.
    head.headers.remove(AUTHORIZATION);
    let host = HeaderValue::from_str(authority).map_err(Status::internal)?;
    head.headers.insert(HOST, host);
    Ok(Request::from_parts(head, Limited::new(body, body_bytes)))
}

fn drop_hop_by_hop(headers: &mut HeaderMap) {
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

fn unreachable(error: &KubeletError) -> Status {
    match error {
        KubeletError::Unreachable { .. } => Status::dialing_failed(error),
        other => Status::unreachable_service(other),
    }
}

fn broken(error: &hyper::Error) -> Status {
    Status::unreachable_service(error)
}
