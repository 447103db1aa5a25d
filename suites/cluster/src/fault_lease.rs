//! A fault for a limited time, of the API servers or of a node, leased over a connection: a process at the other end
//! keeps the fault in force.
//! ```text
//!  FaultLease ── connection ── hold ── the provider's begin and heal
//! ```
//!
//! The fault ends when the lease ends it, when the connection closes for any reason, and when its time is over. The
//! user of a fault therefore has nothing to undo and can't forget to.

use std::{fmt, io, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    time::timeout,
};

use crate::ClusterError;

/// Most bytes of a line: an error message.
const LINE: u64 = 64 << 10;

/// Messages of the end that keeps a fault in force, a line each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Event {
    /// The fault is in force.
    Begun,
    /// The lease has ended the fault.
    Ended,
    /// The fault ended because its time was over.
    Lapsed,
    /// The fault could not begin, or could not be undone.
    Failed(ClusterError),
}

/// A fault that is in force.
///
/// It ends with [`FaultLease::end`], soon after the value is dropped or its process ends, and when its time is over.
#[derive(Debug)]
#[must_use = "the fault ends when this is dropped"]
pub struct FaultLease {
    stream: BufReader<UnixStream>,
    answers_within: Duration,
}

impl FaultLease {
    /// Waits until the fault that the other end has to [`hold`] is in force. `answers_within`: limit for its
    /// beginning and for its end.
    ///
    /// # Errors
    /// Why the fault could not begin; the other end is gone.
    pub async fn begun(stream: UnixStream, answers_within: Duration) -> Result<Self, ClusterError> {
        let mut lease = Self {
            stream: BufReader::new(stream),
            answers_within,
        };
        match lease.next("begin a fault").await? {
            Event::Begun => Ok(lease),
            Event::Failed(error) => Err(error),
            Event::Lapsed | Event::Ended => Err(ClusterError::FaultLapsed),
        }
    }

    /// Ends the fault; it is over when this returns.
    ///
    /// # Errors
    /// [`ClusterError::FaultLapsed`] if the fault's time was over before: what was seen under it proves nothing. The
    /// fault could not be ended, for example because an API server does not start again.
    pub async fn end(mut self) -> Result<(), ClusterError> {
        // A fault whose time is over has already sent its end.
        drop(self.stream.write_all(b"end\n").await);
        let what = "end a fault";
        match self.next(what).await? {
            Event::Ended => Ok(()),
            Event::Begun => Err(ClusterError::failed(what, "it began again")),
            Event::Lapsed => Err(ClusterError::FaultLapsed),
            Event::Failed(error) => Err(error),
        }
    }

    async fn next(&mut self, what: &str) -> Result<Event, ClusterError> {
        let limit = self.answers_within;
        let mut line = Vec::new();
        let mut limited = (&mut self.stream).take(LINE);
        timeout(limit, limited.read_until(b'\n', &mut line))
            .await
            .map_err(|_| ClusterError::failed(what, format!("no answer within {limit:?}")))?
            .map_err(|error| ClusterError::failed(what, error))?;
        if line.is_empty() {
            let why = "what keeps it in force has ended without an answer, and the fault with it";
            return Err(ClusterError::failed(what, why));
        }
        serde_json::from_slice(&line).map_err(|error| {
            let text = String::from_utf8_lossy(&line);
            let why = format!(
                "what keeps it in force said {:?}, which this version of plumbline does not know: {error}",
                text.trim_end()
            );
            ClusterError::failed(what, why)
        })
    }
}

/// Keeps a fault in force until the lease ends it or its time is over. `begin` makes the fault, `heal` undoes what
/// `begin` returned.
///
/// # Errors
/// The connection can't be written to.
pub async fn hold<B>(
    mut stream: BufReader<UnixStream>,
    fault: &impl fmt::Display,
    lasts: Duration,
    begin: impl Future<Output = Result<B, ClusterError>>,
    heal: impl AsyncFnOnce(B) -> Result<(), ClusterError>,
) -> io::Result<()> {
    let name = fault.to_string();
    let begun = match begin.await {
        Ok(begun) => begun,
        Err(error) => return send(&mut stream, &Event::Failed(error)).await,
    };
    tracing::info!(fault = name, "a fault begins");
    let mut over = Event::Ended;
    if send(&mut stream, &Event::Begun).await.is_ok() {
        let mut line = Vec::new();
        let mut limited = (&mut stream).take(LINE);
        // Returns at a line, at the end of the connection, or when the time is over.
        if timeout(lasts, limited.read_until(b'\n', &mut line))
            .await
            .is_err()
        {
            over = Event::Lapsed;
        }
    }
    let healed = heal(begun).await;
    match &healed {
        Ok(()) => tracing::info!(fault = name, "the fault is over"),
        Err(why) => tracing::error!(fault = name, %why, "the fault could not be ended"),
    }
    // The user of the fault may be gone.
    drop(send(&mut stream, &healed.map_or_else(Event::Failed, |()| over)).await);
    Ok(())
}

async fn send(stream: &mut BufReader<UnixStream>, event: &Event) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    stream.write_all(&line).await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::ApiFault;

    const FAULT: ApiFault = ApiFault::SharedAddress;
    const LONG: Duration = Duration::from_secs(60);

    /// Holds a fault at one end of a connection while `user` has the other. Returns the user's result, and whether
    /// the fault was undone.
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
            let lease = FaultLease::begun(stream, LONG).await.expect("begun");
            lease.end().await
        };
        let (ended, undone) = with(LONG, end).await;
        assert!(ended.is_ok() && undone, "it was ended: {ended:?}");

        let lapse = async |stream| {
            let mut lease = FaultLease::begun(stream, LONG).await.expect("begun");
            let mut line = Vec::new();
            lease
                .stream
                .read_until(b'\n', &mut line)
                .await
                .expect("an answer");
            line
        };
        let (event, undone) = with(Duration::from_millis(1), lapse).await;
        let event: Event = serde_json::from_slice(&event).expect("an event");
        assert!(
            matches!(event, Event::Lapsed) && undone,
            "its time was over: {event:?}"
        );

        let forget = async |stream| drop(FaultLease::begun(stream, LONG).await.expect("begun"));
        let ((), undone) = with(LONG, forget).await;
        assert!(undone, "its user is gone");
    }

    #[tokio::test]
    async fn an_end_after_its_time_says_that_it_has_lapsed() {
        let late = async |stream| {
            let lease = FaultLease::begun(stream, LONG).await.expect("begun");
            lease.stream.get_ref().readable().await.expect("an event");
            lease.end().await
        };
        let (ended, _) = with(Duration::from_millis(1), late).await;
        assert!(matches!(ended, Err(ClusterError::FaultLapsed)), "{ended:?}");
    }

    #[tokio::test]
    async fn what_can_not_begin_is_refused_with_the_reason() {
        let (ours, its) = UnixStream::pair().expect("a connection");
        let begin = async { Err::<(), _>(ClusterError::failed("begin it", "API server 2 is down already")) };
        let heal = async |()| panic!("nothing has begun");
        let held = hold(BufReader::new(its), &FAULT, LONG, begin, heal);
        let (begun, held) = tokio::join!(FaultLease::begun(ours, LONG), held);
        held.expect("held to its end");
        let error = begun.expect_err("refused").to_string();
        assert!(error.contains("down already"), "{error}");
    }
}
