//! Sends requests to a supervisor.

use std::{io, time::Duration};

use cluster::ClusterError;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    time::timeout,
};

use super::{
    LIMITS, LabError,
    dir::LabDir,
    protocol::{Reply, Request},
};

/// Sends a request and reads the response; a refusal is [`LabError::Refused`] or [`LabError::Starting`].
pub(super) async fn call(dir: &LabDir, request: &Request, limit: Duration) -> Result<Reply, LabError> {
    match timeout(limit, exchange(dir, request)).await {
        Ok(Ok(Reply::Refused(refusal))) => Err(LabError::Refused(refusal)),
        Ok(Ok(Reply::Starting { pid })) => Err(LabError::Starting {
            name: dir.name().to_owned(),
            pid,
        }),
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(error)) => Err(no_supervisor(dir, &error)),
        Err(_) => Err(LabError::Control {
            name: dir.name().to_owned(),
            why: format!("no answer within {limit:?}"),
        }),
    }
}

/// Explains a response of the wrong type.
pub(super) const OTHER_ANSWER: &str = "it answered another question, as the lab of another version of plumbline can; take the \
                                       lab down by `plumbline lab down`, and bring it up again";

/// The error for a response of the wrong type.
pub(super) fn unexpected(dir: &LabDir) -> LabError {
    LabError::Control {
        name: dir.name().to_owned(),
        why: OTHER_ANSWER.to_owned(),
    }
}

/// For `map_err`: the operation, as a case names it.
pub(super) fn cluster_error(what: impl Into<String>) -> impl FnOnce(LabError) -> ClusterError {
    let what = what.into();
    move |error| match error {
        LabError::Refused(refused) => refused,
        other => ClusterError::Failed {
            what,
            why: other.to_string(),
        },
    }
}

/// Sends a request and keeps the connection.
pub(super) async fn open(dir: &LabDir, request: &Request) -> Result<UnixStream, LabError> {
    ask(dir, request)
        .await
        .map_err(|error| no_supervisor(dir, &error))
}

/// The error for a supervisor that accepts no request.
fn no_supervisor(dir: &LabDir, error: &io::Error) -> LabError {
    let name = dir.name().to_owned();
    match error.kind() {
        // The socket does not exist, or has no listener.
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => LabError::NotUp { name },
        _ => LabError::Control {
            name,
            why: error.to_string(),
        },
    }
}

async fn ask(dir: &LabDir, request: &Request) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(dir.socket()).await?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    Ok(stream)
}

async fn exchange(dir: &LabDir, request: &Request) -> io::Result<Reply> {
    let stream = ask(dir, request).await?;
    let mut answer = Vec::new();
    let mut reader = BufReader::new(stream.take(LIMITS.control_bytes));
    reader.read_until(b'\n', &mut answer).await?;
    if answer.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "it ended without an answer",
        ));
    }
    Ok(serde_json::from_slice(&answer)?)
}
