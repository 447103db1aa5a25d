//! Forwards one request.

use std::{io, net::IpAddr};

use http_body_util::BodyExt as _;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    client::conn::{http1, http2},
    header::{CONTENT_TYPE, TRANSFER_ENCODING, UPGRADE},
    upgrade::OnUpgrade,
};
use hyper_util::rt::TokioIo;
use tokio::{io::copy_bidirectional, sync::Mutex};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    frames::Framing,
    identity::{self, Certified},
    watch,
};
use crate::{
    faults::{self, Client, Faults},
    http::{Query, is_open},
    respond::{self, Body},
    status::Status,
};

/// The connection to the server.
pub(super) enum Upstream {
    /// One request at a time, as at the client.
    Http1(Mutex<http1::SendRequest<Incoming>>),
    Http2(http2::SendRequest<Incoming>),
}

impl Upstream {
    async fn send(&self, request: Request<Incoming>) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::Http1(sender) => sender.lock().await.send_request(request).await,
            Self::Http2(sender) => sender.clone().send_request(request).await,
        }
    }
}

/// One connection of a client.
pub(super) struct Connection {
    faults: Faults,
    upstream: Upstream,
    certified: Option<Certified>,
    source: IpAddr,
    /// Upgraded connections: programs in pods, forwarded ports.
    tunnels: TaskTracker,
    ended: CancellationToken,
}

impl Connection {
    /// `ended` must be cancelled at the latest when the connection's task is dropped: it ends the tunnels.
    pub(super) fn new(
        faults: Faults,
        upstream: Upstream,
        certified: Option<Certified>,
        source: IpAddr,
        ended: CancellationToken,
    ) -> Self {
        Self {
            faults,
            upstream,
            certified,
            source,
            tunnels: TaskTracker::new(),
            ended,
        }
    }

    /// Waits until all tunnels have ended. None may begin afterwards.
    pub(super) async fn tunnels_have_ended(&self) {
        self.tunnels.close();
        self.tunnels.wait().await;
    }

    /// Answers a request as the server does, with faults. An error ends the connection, as the server's end does.
    pub(super) async fn answer(&self, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let client = identity::client(self.certified.as_ref(), request.headers(), self.source);
        if let Err(status) = self.refused(&request, &client) {
            return Ok(faults::apply_to_body(
                &self.faults,
                &client,
                respond::failure(&status),
            ));
        }
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let is_watch = request.method() == Method::GET && query.watch();
        let response = self.forward(request).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response);
        }
        let response = if is_watch && response.status() == StatusCode::OK {
            self.watched(response, &query, &client)
        } else {
            response
        };
        Ok(faults::apply_to_body(&self.faults, &client, response))
    }

    fn refused(&self, request: &Request<Incoming>, client: &Client) -> Result<(), Status> {
        if is_open(request.uri().path()) {
            return Ok(());
        }
        self.faults.refuse(client)?;
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let is_exact = query.get("resourceVersionMatch") == "Exact" || !query.get("continue").is_empty();
        if request.method() == Method::GET && is_exact && self.faults.expires(client) {
            // The real versions are unknown here.
            return Err(Status::expired(0, 1));
        }
        Ok(())
    }

    async fn forward(&self, mut request: Request<Incoming>) -> io::Result<Response<Body>> {
        identity::set_remote_user(self.certified.as_ref(), request.headers_mut())
            .map_err(io::Error::other)?;
        let theirs = request
            .headers()
            .contains_key(UPGRADE)
            .then(|| hyper::upgrade::on(&mut request));
        let mut response = self.upstream.send(request).await.map_err(io::Error::other)?;
        match theirs {
            Some(theirs) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                let ours = hyper::upgrade::on(&mut response);
                let ended = self.ended.clone();
                self.tunnels.spawn(async move {
                    tokio::select! {
                        () = ended.cancelled() => {}
                        () = tunnel(theirs, ours) => {}
                    }
                });
            }
            // The framing of a body belongs to its connection.
            _ => drop(response.headers_mut().remove(TRANSFER_ENCODING)),
        }
        Ok(response.map(|body| body.map_err(io::Error::other).boxed_unsync()))
    }

    fn watched(&self, response: Response<Body>, query: &Query, client: &Client) -> Response<Body> {
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let Some(framing) = Framing::of(content_type) else {
            let offered = "application/json, application/vnd.kubernetes.protobuf;stream=watch";
            return respond::failure(&Status::not_acceptable(offered));
        };
        let state_first = query.flag("sendInitialEvents");
        response.map(|body| watch::body(body, framing, state_first, &self.faults, client))
    }
}

async fn tunnel(theirs: OnUpgrade, ours: OnUpgrade) {
    let (theirs, ours) = match tokio::try_join!(theirs, ours) {
        Ok(both) => both,
        Err(error) => return tracing::debug!(%error, "a connection did not become another protocol's"),
    };
    let copied = copy_bidirectional(&mut TokioIo::new(theirs), &mut TokioIo::new(ours)).await;
    if let Err(error) = copied {
        tracing::debug!(%error, "a connection of another protocol broke");
    }
}
