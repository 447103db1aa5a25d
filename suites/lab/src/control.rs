//! The control socket: one request and one response for each connection.
//!
//! The socket exists before the lab, so that early requests get a response and an early `down` takes effect.

use std::{io, os::unix::fs::PermissionsExt, path::Path, process, sync::Arc};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};

use cluster::ClusterError;

use super::{
    LIMITS, LabError,
    error::io_error,
    lab::RequestState,
    narrow_hop::NarrowHop,
    power::PowerLoss,
    protocol::{Reply, Request},
    watched_writes::WatchedWrites,
};

/// Creates the socket.
pub(super) fn listen(path: &Path) -> Result<UnixListener, LabError> {
    let failed = || io_error(format!("listen on {}", path.display()));
    let listener = UnixListener::bind(path).map_err(failed())?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed())?;
    Ok(listener)
}

/// Answers that the lab is starting, until a request wants it down, whose connection is returned. Requests are served
/// one at a time: each has a time limit, and its sender may end the lab anyway.
pub(super) async fn down_requested(listener: &UnixListener) -> UnixStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match early(stream).await {
                Ok(Some(requester)) => return requester,
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "a request on the control socket failed"),
            },
            Err(error) => {
                tracing::warn!(%error, "no connection could be accepted");
                sleep(LIMITS.api_retry).await;
            }
        }
    }
}

async fn early(stream: UnixStream) -> io::Result<Option<UnixStream>> {
    let mut stream = BufReader::new(stream);
    match request(&mut stream).await? {
        Ok(Request::Down) => Ok(Some(stream.into_inner())),
        Ok(_) => {
            let pid = process::id();
            send(stream.get_mut(), &Reply::Starting { pid }).await?;
            Ok(None)
        }
        Err(error) => {
            let refusal = ClusterError::failed("read the request", error);
            send(stream.get_mut(), &Reply::Refused(refusal)).await?;
            Ok(None)
        }
    }
}

/// Serves requests until this future is dropped.
pub(super) async fn serve(listener: UnixListener, lab: Arc<RequestState>) {
    let room = Arc::new(Semaphore::new(LIMITS.control_connections));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        // The semaphore is never closed.
        let Ok(permit) = room.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let lab = lab.clone();
                connections.spawn(async move {
                    if let Err(error) = answer(stream, &lab).await {
                        tracing::warn!(%error, "a request on the control socket failed");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                // Usually a lack of file descriptors, which closing connections return.
                tracing::warn!(%error, "no connection could be accepted");
                connections.join_next().await;
            }
        }
    }
}

/// Reads a request; the inner error is an invalid request.
async fn request(stream: &mut BufReader<UnixStream>) -> io::Result<serde_json::Result<Request>> {
    let mut line = Vec::new();
    let mut limited = stream.take(LIMITS.control_bytes);
    timeout(LIMITS.control, limited.read_until(b'\n', &mut line)).await??;
    Ok(serde_json::from_slice(&line))
}

async fn answer(stream: UnixStream, lab: &RequestState) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let reply = match request(&mut stream).await? {
        Ok(Request::Down) => {
            // The supervisor responds when the lab is down; if the receiver is gone, the lab is going down already.
            drop(lab.down.send(stream.into_inner()).await);
            return Ok(());
        }
        Ok(Request::ApiFault { fault, lasts }) => {
            let begin = lab.api.begin(fault.clone(), lasts);
            let heal = async |begun| lab.api.heal(begun).await;
            return cluster::hold(stream, &fault, lasts, begin, heal).await;
        }
        Ok(Request::PowerLoss { node, lasts }) => {
            let what = format!("{node} has no power");
            let heal = async |lost: PowerLoss| lost.heal().await;
            return cluster::hold(stream, &what, lasts, lab.power_loss(&node, lasts), heal).await;
        }
        Ok(Request::WatchWrites { node, lasts }) => {
            let what = format!("writes of the agent of {node} can fail");
            let heal = async |watched: WatchedWrites| watched.heal().await;
            return cluster::hold(stream, &what, lasts, lab.watched_writes(&node, lasts), heal).await;
        }
        Ok(Request::NarrowHop { lasts }) => {
            let heal = async |hop: NarrowHop| hop.heal().await;
            return cluster::hold(stream, &"a narrow hop", lasts, lab.narrow_hop(lasts), heal).await;
        }
        Ok(request) => handle(request, lab).await.unwrap_or_else(Reply::Refused),
        Err(error) => Reply::Refused(ClusterError::failed("read the request", error)),
    };
    send(stream.get_mut(), &reply).await
}

/// Sends a response.
pub(super) async fn send(stream: &mut UnixStream, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    stream.write_all(&line).await
}

async fn handle(request: Request, lab: &RequestState) -> Result<Reply, ClusterError> {
    let done = |result: Result<(), String>, what: String| {
        result
            .map(|()| Reply::Done)
            .map_err(|why| ClusterError::failed(what, why))
    };
    match request {
        Request::About => Ok(Reply::About(Box::new(lab.about.clone()))),
        Request::Status => Ok(Reply::Status(lab.status().await)),
        Request::Locate { place } => lab.locate(&place).map(Reply::Located),
        Request::Agent { node } => Ok(Reply::Agent(lab.agent(&node)?.state().await)),
        Request::StopAgent { node, how } => done(
            lab.agent(&node)?.stop(how).await,
            format!("stop the agent of {node}"),
        ),
        Request::StartAgent { node, variant } => done(
            lab.agent(&node)?.start(variant).await,
            format!("start the agent of {node}"),
        ),
        Request::SetApiEndpoint { node, endpoint } => done(
            lab.agent(&node)?.set_api_endpoint(endpoint),
            format!("set the API endpoint of the agent of {node}"),
        ),
        Request::CleanUpAgent { node } => done(
            lab.agent(&node)?.clean_up().await,
            format!("clean up after the agent of {node}"),
        ),
        Request::FailWrites { node, one_of } => {
            let writes = lab.agent(&node)?.watch().writes().ok_or_else(|| {
                let what = format!("let writes of the agent of {node} fail");
                ClusterError::failed(
                    what,
                    "it was not started for it: no fault that watches its writes is there",
                )
            })?;
            Ok(Reply::FailedWrites(writes.fail(one_of)))
        }
        Request::ApiServers => Ok(Reply::ApiServers(lab.api.list().await)),
        Request::JumpVersions { by } => done(
            lab.api.jump_versions(by).map_err(str::to_owned),
            "let the resourceVersion jump".to_owned(),
        ),
        Request::Down
        | Request::ApiFault { .. }
        | Request::PowerLoss { .. }
        | Request::NarrowHop { .. }
        | Request::WatchWrites { .. } => Err(ClusterError::failed("answer", "it is answered elsewhere")),
    }
}
