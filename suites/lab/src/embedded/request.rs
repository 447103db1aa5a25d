//! Asks a supervisor.

use std::{io, time::Duration};

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
use crate::cluster::ClusterError;

/// Sends a request and takes the answer; one that says no is [`LabError::Refused`].
pub(super) async fn call(dir: &LabDir, request: &Request, limit: Duration) -> Result<Reply, LabError> {
    let wrong = |why: String| LabError::Control {
        name: dir.name().to_owned(),
        why,
    };
    match timeout(limit, exchange(dir, request)).await {
        Ok(Ok(Reply::Refused(refusal))) => Err(LabError::Refused(ClusterError::from(refusal))),
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(error)) => match error.kind() {
            // No socket, or one that nobody listens on any more.
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Err(LabError::NotUp {
                name: dir.name().to_owned(),
            }),
            _ => Err(wrong(error.to_string())),
        },
        Err(_) => Err(wrong(format!("no answer within {limit:?}"))),
    }
}

async fn exchange(dir: &LabDir, request: &Request) -> io::Result<Reply> {
    let mut stream = UnixStream::connect(dir.socket()).await?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
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
