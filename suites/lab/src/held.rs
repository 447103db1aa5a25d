//! A fault of the API servers, held by a connection: this end of it, and that of whoever makes it.

use std::{io, time::Duration};

use async_trait::async_trait;
use cluster::{ApiFault, ClusterError, HeldApiFault, Hold};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    time::timeout,
};

use super::{
    LIMITS, LabError,
    control::send,
    dir::LabDir,
    error::io_error,
    protocol::{Refusal, Reply, Request},
    request::{OTHER_ANSWER, open},
};

/// What a fault may take to begin or to end: an API server that stops answers what is under way, and one that was down is
/// awaited until it serves.
const LIMIT: Duration = LIMITS
    .control
    .saturating_add(LIMITS.agent_stop)
    .saturating_add(LIMITS.api_serves);

/// A connection at whose other end somebody keeps up a fault of the API servers, as long as it is open.
#[derive(Debug)]
pub struct HeldByConnection {
    /// Of the lab or cluster, for errors.
    name: String,
    stream: BufReader<UnixStream>,
}

/// Begins one; it is in force when this returns.
pub(super) async fn begin(dir: &LabDir, fault: ApiFault, lasts: Duration) -> Result<HeldApiFault, LabError> {
    let stream = open(dir, &Request::ApiFault { fault, lasts }).await?;
    let connection = HeldByConnection::begun(dir.name(), stream).await?;
    Ok(HeldApiFault::new(connection))
}

/// Keeps up a fault as long as somebody holds the connection, and no longer than it may last: `begin` makes it, `heal` undoes
/// what that returned.
///
/// # Errors
/// The connection can't be written to.
pub async fn hold<B>(
    mut stream: BufReader<UnixStream>,
    fault: &ApiFault,
    lasts: Duration,
    begin: impl Future<Output = Result<B, Refusal>>,
    heal: impl AsyncFnOnce(B) -> Result<(), Refusal>,
) -> io::Result<()> {
    let name = fault.to_string();
    let begun = match begin.await {
        Ok(begun) => begun,
        Err(refusal) => return send(stream.get_mut(), &Reply::Refused(refusal)).await,
    };
    tracing::info!(fault = name, "a fault begins");
    let mut over = Reply::Done;
    if send(stream.get_mut(), &Reply::Done).await.is_ok() {
        let mut line = Vec::new();
        let mut limited = (&mut stream).take(LIMITS.control_bytes);
        // However it ends: a line, the end of the connection, or of the time.
        if timeout(lasts, limited.read_until(b'\n', &mut line))
            .await
            .is_err()
        {
            over = Reply::Lapsed;
        }
    }
    let healed = heal(begun).await;
    match &healed {
        Ok(()) => tracing::info!(fault = name, "the fault is over"),
        Err(why) => tracing::error!(fault = name, ?why, "the fault could not be ended"),
    }
    let reply = healed.map_or_else(Reply::Refused, |()| over);
    // Whoever began it may be gone.
    drop(send(stream.get_mut(), &reply).await);
    Ok(())
}

impl HeldByConnection {
    /// One at whose other end somebody has been asked to [`hold`] a fault; it is in force when this returns.
    ///
    /// # Errors
    /// It was refused, or the other end is gone.
    pub async fn begun(name: &str, stream: UnixStream) -> Result<Self, LabError> {
        let mut held = Self {
            name: name.to_owned(),
            stream: BufReader::new(stream),
        };
        held.done().await?;
        Ok(held)
    }

    /// The next answer, which should be that it is done.
    async fn done(&mut self) -> Result<(), LabError> {
        let wrong = |why: String| LabError::Control {
            name: self.name.clone(),
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
                name: self.name.clone(),
                pid,
            }),
            Ok(Reply::Refused(refusal)) => Err(LabError::Refused(ClusterError::from(refusal))),
            Ok(_) => Err(wrong(OTHER_ANSWER.to_owned())),
            Err(error) => Err(wrong(error.to_string())),
        }
    }
}

#[async_trait]
impl Hold for HeldByConnection {
    async fn end(mut self: Box<Self>) -> Result<(), ClusterError> {
        // One whose time is over has answered already.
        drop(self.stream.write_all(b"end\n").await);
        let done = self.done().await;
        done.map_err(super::request::cluster_error("end a fault of the API servers"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const FAULT: ApiFault = ApiFault::SharedAddress;
    const LONG: Duration = Duration::from_secs(60);

    /// Holds a fault at one end of a connection while `user` has the other; what the user got, and whether it was undone.
    async fn with<T>(lasts: Duration, user: impl AsyncFnOnce(UnixStream) -> T) -> (T, bool) {
        let (ours, its) = UnixStream::pair().expect("a connection");
        let undone = AtomicBool::new(false);
        let heal = async |()| {
            undone.store(true, Ordering::Relaxed);
            Ok(())
        };
        let held = hold(BufReader::new(its), &FAULT, lasts, async { Ok(()) }, heal);
        let (got, held) = tokio::join!(user(ours), held);
        held.expect("held to its end");
        (got, undone.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn a_fault_is_undone_however_it_ends() {
        let end = async |stream| {
            let held = HeldByConnection::begun("test", stream).await.expect("begun");
            Box::new(held).end().await
        };
        let (ended, undone) = with(LONG, end).await;
        assert!(ended.is_ok() && undone, "it was ended: {ended:?}");

        let lapse = async |stream| {
            let mut held = HeldByConnection::begun("test", stream).await.expect("begun");
            let mut line = Vec::new();
            held.stream.read_until(b'\n', &mut line).await.expect("an answer");
            line
        };
        let (said, undone) = with(Duration::from_millis(1), lapse).await;
        let said: Reply = serde_json::from_slice(&said).expect("an answer");
        assert!(
            matches!(said, Reply::Lapsed) && undone,
            "its time was over: {said:?}"
        );

        let forget = async |stream| drop(HeldByConnection::begun("test", stream).await.expect("begun"));
        let ((), undone) = with(LONG, forget).await;
        assert!(undone, "whoever wanted it is gone");
    }

    #[tokio::test]
    async fn what_can_not_begin_is_refused_with_the_reason() {
        let (ours, its) = UnixStream::pair().expect("a connection");
        let begin = async { Err::<(), _>(Refusal::failed("begin it", &"API server 2 is down already")) };
        let heal = async |()| panic!("nothing has begun");
        let held = hold(BufReader::new(its), &FAULT, LONG, begin, heal);
        let (begun, held) = tokio::join!(HeldByConnection::begun("test", ours), held);
        held.expect("held to its end");
        let error = begun.expect_err("refused").to_string();
        assert!(error.contains("down already"), "{error}");
    }
}
