//! One attempt: from a fresh socket to its line in the history.

use std::{collections::VecDeque, io, net::SocketAddr, time::Duration};

use nix::errno::Errno;
use oracle::history::{Answer, Attempt, Exchange, Outcome, PlanEntry, Stage, Transport};

use super::socket::Socket;
use crate::{clock, wire};

/// Progress of an attempt: all that is known of one that is cut off.
pub(super) struct Trace {
    /// The call that it is in.
    pub(super) stage: Stage,
    /// The socket's own address, once it has one.
    pub(super) local: Option<SocketAddr>,
}

/// Why an attempt got no answer.
pub(super) enum Trouble {
    /// A call failed, which the [`Trace`] names.
    Call(io::Error),
    /// The answer is not a probe server's.
    Garbled(String),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Call(error)
    }
}

/// An answer, and the socket's peer.
pub(super) type Reply = (Answer, SocketAddr);

/// What is known of an attempt before it starts.
pub(super) struct About<'a> {
    pub(super) client: &'a str,
    pub(super) target: &'a str,
    pub(super) transport: Transport,
    pub(super) destination: SocketAddr,
    pub(super) limit: Duration,
    pub(super) nonce: String,
    pub(super) exchange: Option<Exchange>,
}

/// Makes the attempt with this number in its entry.
pub(super) async fn make(client: &str, entry: &PlanEntry, number: u32, nonce: String) -> Attempt {
    let about = About {
        client,
        target: &entry.target,
        transport: entry.transport,
        destination: SocketAddr::new(entry.address, entry.port),
        limit: Duration::from_millis(entry.limit_ms),
        nonce: nonce.clone(),
        exchange: None,
    };
    let destination = about.destination;
    let (source, limit) = (entry.source_port(number), about.limit);
    let mut answered = None;
    let attempt = watched(about, async |trace| {
        let socket = Socket::open(entry.transport, destination, source, trace).await?;
        let reply = exchange(&socket, &nonce, None, trace).await?;
        answered = Some(socket);
        Ok(reply)
    })
    .await;
    if let Some(socket) = answered.filter(|_| source != 0) {
        // A server that does not end its side leaves the port in TIME-WAIT.
        drop(tokio::time::timeout(limit, socket.ended()).await);
    }
    attempt
}

/// Runs an attempt within its limit.
pub(super) async fn watched(
    about: About<'_>,
    attempt: impl AsyncFnOnce(&mut Trace) -> Result<Reply, Trouble>,
) -> Attempt {
    let mut trace = Trace {
        stage: Stage::Socket,
        local: None,
    };
    let start_us = clock::now_us();
    let result = tokio::time::timeout(about.limit, attempt(&mut trace)).await;
    let end_us = clock::now_us();
    let outcome = match result {
        Ok(Ok((answer, peer))) => Outcome::Answered { answer, peer },
        Ok(Err(Trouble::Call(error))) => Outcome::Failed {
            stage: trace.stage,
            errno: symbol(&error),
        },
        Ok(Err(Trouble::Garbled(said))) => Outcome::Garbled { said },
        Err(_) => Outcome::Timeout { stage: trace.stage },
    };
    Attempt {
        start_us,
        end_us,
        client: about.client.to_owned(),
        target: about.target.to_owned(),
        transport: about.transport,
        destination: about.destination,
        local: trace.local,
        nonce: about.nonce,
        exchange: about.exchange,
        fragments: None,
        outcome,
    }
}

/// One request and its answer, on a socket without other exchanges. On a connection that is used again, nonces begin
/// with `earlier`: its requests keep it open, and late answers to earlier ones are skipped.
pub(super) async fn exchange(
    socket: &Socket,
    nonce: &str,
    earlier: Option<&str>,
    trace: &mut Trace,
) -> Result<Reply, Trouble> {
    trace.stage = Stage::Send;
    let keep = earlier.is_some() && !socket.is_udp();
    let mut unsent = VecDeque::from([socket.request(nonce, keep)]);
    while !unsent.is_empty() {
        socket.send(&mut unsent).await?;
    }
    answer(socket, nonce, 0, earlier, trace).await
}

/// The answer to a request, in a datagram of this size if it is not 0.
pub(super) async fn answer(
    socket: &Socket,
    nonce: &str,
    bytes: u16,
    earlier: Option<&str>,
    trace: &mut Trace,
) -> Result<Reply, Trouble> {
    trace.stage = Stage::Receive;
    let mut begun = Vec::new();
    loop {
        let (message, peer) = match socket.receive(&mut begun).await {
            // It ended without an answer, or in the middle of one.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(Trouble::Garbled(wire::beginning(&begun)));
            }
            received => received?,
        };
        let answer = wire::answer(&message).map_err(Trouble::Garbled)?;
        if answer.nonce == nonce {
            if !wire::is_whole(&message, nonce, bytes) {
                let length = message.len();
                let said = format!("an answer of {length} bytes, not the {bytes} bytes that were sent");
                return Err(Trouble::Garbled(said));
            }
            return Ok((answer, peer));
        }
        // A datagram for another nonce is a late reply to an earlier request, or to an earlier user of this port. On a
        // connection a line for another nonce is a wrong answer.
        let is_late = earlier.is_some_and(|prefix| answer.nonce.starts_with(prefix));
        if !socket.is_udp() && !is_late {
            return Err(Trouble::Garbled(wire::beginning(&message)));
        }
    }
}

/// The symbol of an error, or its number if it has none in user space (a program may return any).
pub(crate) fn symbol(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => match Errno::from_raw(number) {
            Errno::UnknownErrno => format!("errno {number}"),
            errno => format!("{errno:?}"),
        },
        None => error.kind().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_their_symbols() {
        for (number, expected) in [
            (111, "ECONNREFUSED"),
            (1, "EPERM"),
            (113, "EHOSTUNREACH"),
            (524, "errno 524"),
        ] {
            assert_eq!(symbol(&io::Error::from_raw_os_error(number)), expected);
        }
    }
}
