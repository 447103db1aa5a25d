//! A fault of the API servers, held by its connection to the supervisor.

use std::time::Duration;

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    time::timeout,
};

use super::{
    LIMITS, LabError,
    dir::LabDir,
    error::io_error,
    protocol::{Reply, Request},
    request::{open, unexpected},
};
use crate::cluster::ClusterError;

/// What a fault may take to begin or to end: an API server that stops answers what is under way, and one that was down is
/// awaited until it serves.
const LIMIT: Duration = LIMITS
    .control
    .saturating_add(LIMITS.agent_stop)
    .saturating_add(LIMITS.api_serves);

/// A fault of the API servers that is in force.
///
/// It ends with [`HeldApiFault::end`], and soon after the value is dropped or its process ends, however that happens.
#[derive(Debug)]
#[must_use = "the fault ends when this is dropped"]
pub struct HeldApiFault {
    dir: LabDir,
    stream: BufReader<UnixStream>,
}

/// Begins one; it is in force when this returns.
pub(super) async fn begin(
    dir: &LabDir,
    fault: crate::cluster::ApiFault,
    lasts: Duration,
) -> Result<HeldApiFault, LabError> {
    let stream = open(dir, &Request::ApiFault { fault, lasts }).await?;
    let mut held = HeldApiFault {
        dir: dir.clone(),
        stream: BufReader::new(stream),
    };
    held.done().await?;
    Ok(held)
}

impl HeldApiFault {
    /// Ends it; it is over when this returns.
    ///
    /// # Errors
    /// [`ClusterError::FaultLapsed`] if its time was over before: what was seen under it proves nothing. It could not be
    /// ended, such as an API server that does not start again.
    pub async fn end(mut self) -> Result<(), ClusterError> {
        // One whose time is over has answered already.
        drop(self.stream.write_all(b"end\n").await);
        let done = self.done().await;
        done.map_err(super::request::cluster_error("end a fault of the API servers"))
    }

    /// The next answer, which should be that it is done.
    async fn done(&mut self) -> Result<(), LabError> {
        let wrong = |why: String| LabError::Control {
            name: self.dir.name().to_owned(),
            why,
        };
        let mut line = Vec::new();
        let mut limited = (&mut self.stream).take(LIMITS.control_bytes);
        timeout(LIMIT, limited.read_until(b'\n', &mut line))
            .await
            .map_err(|_| wrong(format!("no answer within {LIMIT:?}")))?
            .map_err(io_error("read an answer of the lab's supervisor"))?;
        if line.is_empty() {
            return Err(wrong(
                "it ended without an answer, and the fault with it".to_owned(),
            ));
        }
        match serde_json::from_slice(&line) {
            Ok(Reply::Done) => Ok(()),
            Ok(Reply::Lapsed) => Err(LabError::Refused(ClusterError::FaultLapsed)),
            Ok(Reply::Starting { pid }) => Err(LabError::Starting {
                name: self.dir.name().to_owned(),
                pid,
            }),
            Ok(Reply::Refused(refusal)) => Err(LabError::Refused(ClusterError::from(refusal))),
            Ok(other) => Err(unexpected(&self.dir, &other)),
            Err(error) => Err(wrong(error.to_string())),
        }
    }
}
