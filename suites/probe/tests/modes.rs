//! Servers that are slow, refuse, close half, are not ready, or end slowly.

mod common;

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use common::{Sink, entry, one, server};
use oracle::history::{Attempt, Outcome, Served, Stage, Transport};
use probe::serve::Mode;

/// One attempt to a server of a mode, and what that has logged.
async fn attempt(mode: Mode, transport: Transport, limit_ms: u64) -> (Attempt, Vec<Served>) {
    let log = Sink::default();
    let (tcp, udp) = server(mode, "b1", "127.0.0.1", &log).await;
    let port = if transport == Transport::Tcp { tcp } else { udp };
    let mut entry = entry(transport, SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    entry.limit_ms = limit_ms;
    (one(entry).await, log.lines())
}

#[tokio::test]
async fn a_slow_server_answers_late_and_times_out_who_waits_less() {
    let slow = Mode::Slow(Duration::from_millis(200));
    let (patient, _) = attempt(slow, Transport::Tcp, 10_000).await;
    assert!(matches!(patient.outcome, Outcome::Answered { .. }), "{patient:?}");
    assert!(patient.end_us - patient.start_us >= 200_000, "{patient:?}");
    let (hasty, logged) = attempt(slow, Transport::Tcp, 50).await;
    let stage = Stage::Receive;
    assert_eq!(hasty.outcome, Outcome::Timeout { stage });
    assert!(logged.is_empty(), "it has not answered yet: {logged:?}");
    let (datagram, _) = attempt(slow, Transport::Udp, 10_000).await;
    assert!(
        matches!(datagram.outcome, Outcome::Answered { .. }),
        "{datagram:?}"
    );
}

#[tokio::test]
async fn a_server_refuses_resets_after_the_handshake_and_logs_nothing() {
    let (reset, logged) = attempt(Mode::Refuse, Transport::Tcp, 10_000).await;
    let Outcome::Failed { stage, errno } = &reset.outcome else {
        panic!("{reset:?}")
    };
    assert!(
        [Stage::Handshake, Stage::Send, Stage::Receive].contains(stage),
        "{reset:?}"
    );
    assert!(
        ["ECONNRESET", "EPIPE", "ENOTCONN"].contains(&errno.as_str()),
        "{reset:?}"
    );
    assert!(logged.is_empty());
}

#[tokio::test]
async fn a_server_closes_half_is_an_answer_of_nothing() {
    let (ended, logged) = attempt(Mode::HalfClose, Transport::Tcp, 10_000).await;
    let said = String::new();
    assert_eq!(ended.outcome, Outcome::Garbled { said });
    assert!(logged.is_empty());
}
