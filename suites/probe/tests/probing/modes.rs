//! Servers that are slow, refuse, close half, are not ready, or end slowly.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use crate::common::{Sink, entry, one, run, server};
use oracle::history::{Attempt, Outcome, Served, Stage, Transport};
use probe::serve::{Mode, READY, ServeConfig, Server};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// One attempt to a server with a mode, and the server's log.
async fn attempt(mode: Mode, transport: Transport, limit_ms: u64) -> (Attempt, Vec<Served>) {
    let log = Sink::default();
    let (tcp, udp) = server(mode, "b1", "127.0.0.1", &log).await;
    let port = if transport == Transport::Udp { udp } else { tcp };
    let mut entry = entry(transport, SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    entry.limit_ms = limit_ms;
    (one(entry).await, log.lines())
}

#[tokio::test]
async fn a_slow_server_answers_late_and_times_out_clients_that_wait_less() {
    let slow = Mode::Slow(Duration::from_millis(200));
    let (patient, _) = attempt(slow, Transport::Tcp, 10_000).await;
    assert!(matches!(patient.outcome, Outcome::Answered { .. }), "{patient:?}");
    assert!(patient.end_us - patient.start_us >= 200_000, "{patient:?}");
    let (hasty, logged) = attempt(slow, Transport::Tcp, 50).await;
    let stage = Stage::Receive;
    assert_eq!(hasty.outcome, Outcome::Timeout { stage });
    assert!(logged.is_empty(), "it has not answered yet: {logged:?}");
    for transport in [Transport::Udp, Transport::Http] {
        let (late, _) = attempt(slow, transport, 10_000).await;
        assert!(matches!(late.outcome, Outcome::Answered { .. }), "{late:?}");
        assert!(late.end_us - late.start_us >= 200_000, "{late:?}");
    }
}

#[tokio::test]
async fn datagrams_to_a_slow_server_wait_for_their_own_time_only() {
    let slow = Mode::Slow(Duration::from_millis(200));
    let (_, udp) = server(slow, "b1", "127.0.0.1", &Sink::default()).await;
    let mut many = entry(Transport::Udp, SocketAddr::from((Ipv4Addr::LOCALHOST, udp)));
    (many.count, many.interval_ms) = (20, 1);
    let attempts = run(vec![many]).await;
    let first_end = attempts.iter().map(|one| one.end_us).min().expect("some");
    assert!(
        attempts.iter().all(|one| one.start_us < first_end),
        "{attempts:?}"
    );
}

#[tokio::test]
async fn a_server_that_refuses_or_closes_half_receives_datagrams_and_answers_none() {
    for mode in [Mode::Refuse, Mode::HalfClose] {
        let (silent, logged) = attempt(mode, Transport::Udp, 100).await;
        let stage = Stage::Receive;
        assert_eq!(silent.outcome, Outcome::Timeout { stage });
        assert!(logged.is_empty());
    }
}

#[tokio::test]
async fn readiness_is_shown_over_http_and_does_not_end_the_service() {
    let config = ServeConfig {
        name: "b1".to_owned(),
        addresses: vec![Ipv4Addr::LOCALHOST.into()],
        tcp: vec![0],
        udp: Vec::new(),
        sctp: Vec::new(),
        pod: None,
        mode: Mode::Prompt,
    };
    let server = Server::bind(&config, Sink::default()).expect("bind");
    let port = server.tcp_ports().next().expect("TCP");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let readiness = server.readiness();
    tokio::spawn(server.run());
    for (is_ready, status) in [(true, "200 OK"), (false, "503 Service Unavailable")] {
        assert_eq!(readiness.set(is_ready).starts_with(READY), is_ready);
        let mut stream = TcpStream::connect(address).await.expect("connect");
        let request = b"GET /readyz HTTP/1.0\r\nUser-Agent: kube-probe\r\n\r\n";
        stream.write_all(request).await.expect("a request");
        let mut response = String::new();
        stream.read_to_string(&mut response).await.expect("a response");
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status}\r\n")),
            "{response}"
        );
        let served = one(entry(Transport::Http, address)).await;
        assert!(matches!(served.outcome, Outcome::Answered { .. }), "{served:?}");
    }
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
