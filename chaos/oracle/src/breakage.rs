//! How attempts ended, and what broke for a client, in words that tell a lost backend from an ended socket and from a
//! refused reconnect.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use serde::{Deserialize, Serialize};

use crate::{
    history::{Attempt, Outcome, Stage, Transport},
    outcome::REFUSALS,
};

/// What broke, by how many of these attempts, most frequent first: `new connections refused (12), open sockets ended
/// (1)`.
#[must_use]
pub fn what_broke(attempts: &[&Attempt]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for attempt in attempts {
        *counts.entry(broke(attempt)).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    match counts.as_slice() {
        [(what, _)] => (*what).to_owned(),
        counts => {
            let words: Vec<String> = counts
                .iter()
                .map(|(what, count)| format!("{what} ({count})"))
                .collect();
            words.join(", ")
        }
    }
}

/// How an attempt ended that was not as expected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "kebab-case")]
pub enum Ending {
    /// A backend answered.
    Answered {
        /// Its identity.
        by: String,
    },
    /// A backend answered another request, or at another port than its identity's.
    Misdelivered {
        /// Its identity.
        by: String,
    },
    /// A backend answered, and the client saw this peer.
    Shown {
        /// The peer.
        peer: SocketAddr,
        /// Whether that is where the backend was reached.
        is_backends: bool,
    },
    /// A backend answered, and saw this source address.
    Seen {
        /// The source.
        source: IpAddr,
    },
    /// Something answered that is no backend of the suite.
    Foreign,
    /// The connection was established, and closed without an answer.
    Closed,
    /// The client got no socket.
    NoSocket,
    /// It was refused.
    Refused,
    /// It was refused, and later than is permitted.
    RefusedLate,
    /// It could not be established, with this error.
    NotConnected {
        /// Its symbol.
        errno: String,
    },
    /// Its socket was open, and ended with this error.
    Ended {
        /// Its symbol.
        errno: String,
    },
    /// It was not established within the client's limit.
    Silent,
    /// It was established, or sent, and got no answer within the client's limit.
    Unanswered,
    /// Its client got no answer, and a backend has it in its log.
    Delivered,
}

impl Ending {
    /// By its outcome alone, whatever was expected.
    #[must_use]
    pub fn of(attempt: &Attempt) -> Self {
        let is_refusal = |errno: &str| REFUSALS.contains(&errno);
        // A flow's later exchanges follow an answer. A datagram that is refused, by the call or by ICMP, ends no open
        // socket.
        let was_served = attempt.exchange.is_some_and(|exchange| exchange.sequence > 0);
        match &attempt.outcome {
            Outcome::Answered { answer, .. } => Self::Answered {
                by: answer.identity.clone(),
            },
            Outcome::Garbled { said } if said.is_empty() => Self::Closed,
            Outcome::Garbled { .. } => Self::Foreign,
            Outcome::Failed {
                stage: Stage::Socket, ..
            }
            | Outcome::Timeout { stage: Stage::Socket } => Self::NoSocket,
            Outcome::Failed { errno, .. } if connects(attempt) => {
                if is_refusal(errno) {
                    Self::Refused
                } else {
                    Self::NotConnected { errno: errno.clone() }
                }
            }
            Outcome::Failed { errno, .. } if is_datagram(attempt) && !was_served && is_refusal(errno) => {
                Self::Refused
            }
            Outcome::Failed { errno, .. } => Self::Ended { errno: errno.clone() },
            Outcome::Timeout { .. } if connects(attempt) => Self::Silent,
            Outcome::Timeout { .. } => Self::Unanswered,
        }
    }
}

/// Whether it ended in the call that connects, or while that was under way.
fn connects(attempt: &Attempt) -> bool {
    matches!(
        attempt.outcome,
        Outcome::Failed {
            stage: Stage::Connect | Stage::Handshake,
            ..
        } | Outcome::Timeout {
            stage: Stage::Connect | Stage::Handshake,
        }
    )
}

fn is_datagram(attempt: &Attempt) -> bool {
    matches!(attempt.transport, Transport::Udp | Transport::UdpConnected)
}

fn broke(attempt: &Attempt) -> &'static str {
    // Every socket of a flow after its first is a reconnect.
    let is_again = attempt.exchange.is_some_and(|exchange| exchange.socket > 0);
    match Ending::of(attempt) {
        Ending::Answered { .. }
        | Ending::Misdelivered { .. }
        | Ending::Shown { .. }
        | Ending::Seen { .. } => "wrong answers",
        Ending::Closed | Ending::Ended { .. } => "open sockets ended",
        Ending::Foreign => "answered by what is no backend",
        Ending::NoSocket => "no socket for the client",
        Ending::Refused if !connects(attempt) => "datagrams refused",
        Ending::Refused | Ending::RefusedLate | Ending::NotConnected { .. } if is_again => {
            "reconnects refused"
        }
        Ending::Refused | Ending::RefusedLate | Ending::NotConnected { .. } => "new connections refused",
        Ending::Silent if is_again => "reconnects unanswered",
        Ending::Silent => "new connections unanswered",
        Ending::Unanswered | Ending::Delivered => "exchanges unanswered",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Exchange;

    fn attempt(transport: Transport, exchange: Option<(u32, u32)>, outcome: Outcome) -> Attempt {
        Attempt {
            start_us: 0,
            end_us: 1,
            client: "c".into(),
            target: "t".into(),
            transport,
            destination: "10.0.0.1:80".parse().unwrap(),
            local: None,
            nonce: String::new(),
            exchange: exchange.map(|(socket, sequence)| Exchange {
                flow: 0,
                socket,
                sequence,
            }),
            fragments: None,
            outcome,
        }
    }

    fn failed(stage: Stage, errno: &str) -> Outcome {
        Outcome::Failed {
            stage,
            errno: errno.into(),
        }
    }

    #[test]
    fn a_lost_backend_an_ended_socket_and_a_refused_reconnect_are_told_apart() {
        let (tcp, udp) = (Transport::Tcp, Transport::UdpConnected);
        for (one, words) in [
            (
                attempt(tcp, None, failed(Stage::Connect, "EPERM")),
                "new connections refused",
            ),
            (
                attempt(tcp, None, failed(Stage::Handshake, "ECONNREFUSED")),
                "new connections refused",
            ),
            (
                attempt(udp, None, failed(Stage::Receive, "ECONNREFUSED")),
                "datagrams refused",
            ),
            (
                attempt(udp, None, failed(Stage::Send, "EDESTADDRREQ")),
                "open sockets ended",
            ),
            (
                attempt(udp, Some((0, 7)), failed(Stage::Receive, "ECONNREFUSED")),
                "open sockets ended",
            ),
            (
                attempt(tcp, Some((0, 7)), failed(Stage::Receive, "ECONNRESET")),
                "open sockets ended",
            ),
            (
                attempt(tcp, Some((1, 8)), failed(Stage::Connect, "EPERM")),
                "reconnects refused",
            ),
        ] {
            assert_eq!(what_broke(&[&one]), words, "{one:?}");
        }
        let [a, b] =
            [Stage::Connect, Stage::Receive].map(|stage| attempt(tcp, None, failed(stage, "ECONNREFUSED")));
        assert_eq!(
            what_broke(&[&b, &a, &a]),
            "new connections refused (2), open sockets ended (1)"
        );
    }
}
