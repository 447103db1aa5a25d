//! What broke for a client, in words that tell a lost backend from an ended socket and from a refused reconnect.

use std::collections::BTreeMap;

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

fn broke(attempt: &Attempt) -> &'static str {
    let is_datagram = matches!(attempt.transport, Transport::Udp | Transport::UdpConnected);
    // A flow's later exchanges follow an answer, and every socket after its first is a reconnect.
    let exchange = attempt.exchange;
    let is_again = exchange.is_some_and(|exchange| exchange.socket > 0);
    let was_served = exchange.is_some_and(|exchange| exchange.sequence > 0);
    match &attempt.outcome {
        Outcome::Answered { .. } => "wrong answers",
        Outcome::Garbled { said } if said.is_empty() => "open sockets ended",
        Outcome::Garbled { .. } => "answered by what is no backend",
        Outcome::Failed {
            stage: Stage::Socket, ..
        }
        | Outcome::Timeout { stage: Stage::Socket } => "no socket for the client",
        Outcome::Failed {
            stage: Stage::Connect | Stage::Handshake,
            ..
        } if is_again => "reconnects refused",
        Outcome::Failed {
            stage: Stage::Connect | Stage::Handshake,
            ..
        } => "new connections refused",
        // A datagram that is refused, by the call or by ICMP, ends no open socket.
        Outcome::Failed { errno, .. } if is_datagram && !was_served && REFUSALS.contains(&errno.as_str()) => {
            "datagrams refused"
        }
        Outcome::Failed { .. } => "open sockets ended",
        Outcome::Timeout {
            stage: Stage::Connect | Stage::Handshake,
        } if is_again => "reconnects unanswered",
        Outcome::Timeout {
            stage: Stage::Connect | Stage::Handshake,
        } => "new connections unanswered",
        Outcome::Timeout { .. } => "exchanges unanswered",
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
