//! One attempt: from a fresh socket to its line in the history.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use nix::errno::Errno;
use oracle::history::{Answer, Attempt, Outcome, PlanEntry, Stage, Transport};

use super::{tcp, udp};
use crate::clock;

/// How far an attempt has come: all that is known of one that is cut off.
pub(super) struct Trace {
    /// The call that it is in.
    pub(super) stage: Stage,
    /// Its own address, once the socket has one.
    pub(super) local: Option<SocketAddr>,
}

/// Why an attempt got no answer.
pub(super) enum Trouble {
    /// A call failed; which is in the [`Trace`].
    Call(io::Error),
    /// Something answered that is no probe server.
    Garbled(String),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Call(error)
    }
}

/// An answer, and who gave it as the socket sees it.
pub(super) type Reply = (Answer, SocketAddr);

/// Makes one attempt.
pub(super) async fn make(client: &str, entry: &PlanEntry, nonce: String) -> Attempt {
    let destination = SocketAddr::new(entry.address, entry.port);
    let mut trace = Trace {
        stage: Stage::Socket,
        local: None,
    };
    let start_us = clock::now_us();
    let dial = async {
        match entry.transport {
            Transport::Tcp => tcp::dial(destination, &nonce, &mut trace).await,
            Transport::Udp => udp::dial(destination, &nonce, &mut trace).await,
            Transport::UdpConnected => udp::dial_connected(destination, &nonce, &mut trace).await,
        }
    };
    let result = tokio::time::timeout(Duration::from_millis(entry.limit_ms), dial).await;
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
        client: client.to_owned(),
        target: entry.target.clone(),
        transport: entry.transport,
        destination,
        local: trace.local,
        nonce,
        exchange: None,
        outcome,
    }
}

/// Any address of the destination's family, any port.
pub(super) fn unspecified(destination: SocketAddr) -> SocketAddr {
    let address = match destination {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(address, 0)
}

/// The symbol of an error, or its number where it has none in user space (a program may return any).
pub(super) fn symbol(error: &io::Error) -> String {
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
