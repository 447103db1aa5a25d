//! A client that outlives the process that started it, and the readers of its history.
//!
//! ```text
//! probe client --control SOCKET ──▶ Kept (memory, file) ──▶ socket ──▶ probe attach SOCKET --from OFFSET
//! ```
//!
//! A reader sends one JSON line, a [`Request`]; the client sends one back, a [`Status`], and after it, for `read`, the
//! attempts from that offset on, until the end of the plan. Where attempts were dropped that a reader requested, a line
//! `{"dropped": NUMBER}` takes their place. A reader that is slow or ends disturbs neither the client nor other
//! readers.

use std::{io, path::Path, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::{Semaphore, watch},
};
use tokio_util::sync::CancellationToken;

use super::history_buffer::Kept;
use crate::wire;

/// Concurrent readers; more wait.
const READERS: usize = 16;
/// Longest request, in bytes.
const LONGEST: u64 = 1024;
/// Lines that are taken from the history together.
const AT_ONCE: usize = 256;
/// A reader sends its request within this time.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// How long after the end of its plan a client waits for a reader of its whole history.
pub const UNREAD: Duration = Duration::from_secs(600);

/// A request to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// The attempts from an offset on.
    Read {
        /// Number of attempts to leave out.
        from: u64,
    },
    /// End the plan now.
    Stop,
}

/// The first line of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Offset of the oldest attempt in memory: the number of dropped ones.
    pub dropped: u64,
    /// Offset of the next attempt.
    pub next: u64,
}

/// Stands for dropped attempts.
#[derive(Debug, Serialize)]
struct Dropped {
    dropped: u64,
}

/// Binds the socket, and replaces one that an ended client has left.
///
/// # Errors
/// Another client answers there, or it cannot be created.
pub(super) fn listen(socket: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(socket) {
        Err(error)
            if error.kind() == io::ErrorKind::AddrInUse
                && std::os::unix::net::UnixStream::connect(socket).is_err() =>
        {
            std::fs::remove_file(socket)?;
            UnixListener::bind(socket)
        }
        bound => bound,
    }
}

/// Serves readers until the history has ended and one has read it to its end, or [`UNREAD`] has passed. A request to
/// stop cancels `stop`.
pub(super) async fn serve(
    listener: &UnixListener,
    kept: &Kept,
    stop: &CancellationToken,
    ended: &CancellationToken,
) {
    let read = watch::Sender::new(());
    let mut was_read = read.subscribe();
    let readers = std::sync::Arc::new(Semaphore::new(READERS));
    let accept = async {
        loop {
            // The semaphore is never closed.
            let Ok(place) = readers.clone().acquire_owned().await else {
                return;
            };
            let Ok((stream, _)) = listener.accept().await else {
                // Nearly always: no file descriptor left.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let (kept, stop, read) = (kept.clone(), stop.clone(), read.clone());
            tokio::spawn(async move {
                if answer(stream, &kept, &stop)
                    .await
                    .is_ok_and(|to_the_end| to_the_end)
                {
                    read.send_replace(());
                }
                drop(place);
            });
        }
    };
    let over = async {
        ended.cancelled().await;
        // No reader has come.
        drop(tokio::time::timeout(UNREAD, was_read.changed()).await);
    };
    tokio::select! {
        () = accept => {}
        () = over => {}
    }
}

/// Serves one reader. Returns whether it has read to the end.
async fn answer(mut stream: UnixStream, kept: &Kept, stop: &CancellationToken) -> io::Result<bool> {
    let mut line = String::new();
    let mut request = BufReader::new(&mut stream).take(LONGEST);
    tokio::time::timeout(REQUEST_LIMIT, request.read_line(&mut line)).await??;
    let request: Request = serde_json::from_str(&line).map_err(io::Error::other)?;
    let (dropped, next) = kept.bounds();
    stream.write_all(&wire::line(&Status { dropped, next })).await?;
    let Request::Read { from } = request else {
        stop.cancel();
        return Ok(false);
    };
    let mut offset = from;
    loop {
        let part = kept.part(offset, AT_ONCE).await;
        let dropped = part.first.saturating_sub(offset);
        if dropped > 0 {
            stream.write_all(&wire::line(&Dropped { dropped })).await?;
        }
        for line in &part.lines {
            stream.write_all(line).await?;
        }
        offset = part.first + part.lines.len() as u64;
        if part.ended {
            stream.shutdown().await?;
            return Ok(true);
        }
    }
}

/// Sends a request to the client at a socket. Returns its status, and the lines that follow.
///
/// # Errors
/// No client answers there.
pub async fn send(socket: &Path, request: Request) -> io::Result<(Status, BufReader<UnixStream>)> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(&wire::line(&request)).await?;
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    (&mut stream).take(LONGEST).read_line(&mut line).await?;
    let status = serde_json::from_str(&line).map_err(io::Error::other)?;
    Ok((status, stream))
}
