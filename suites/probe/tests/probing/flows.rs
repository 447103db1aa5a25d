//! Established flows: their pace, their exchanges, and what ends them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use crate::common::{Sink, entry, one, run, server};
use oracle::history::{Attempt, Exchange, Outcome, Served, Stage, Transport};
use probe::{
    client,
    serve::{Mode, ServeConfig, Server},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, UdpSocket},
};

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn flows(
    transport: Transport,
    destination: SocketAddr,
    flows: u32,
    count: u32,
) -> oracle::history::PlanEntry {
    let mut entry = entry(transport, destination);
    (entry.flows, entry.count, entry.interval_ms, entry.limit_ms) = (Some(flows), count, 20, 5000);
    entry
}

/// The exchange of an attempt.
fn exchange(attempt: &Attempt) -> Exchange {
    attempt.exchange.expect("an exchange")
}

#[tokio::test]
async fn each_flow_keeps_its_socket_and_numbers_its_exchanges() {
    let (tcp, udp) = server(Mode::Prompt, "b1", "127.0.0.1", &Sink::default()).await;
    for (transport, port) in [
        (Transport::Tcp, tcp),
        (Transport::Http, tcp),
        (Transport::Udp, udp),
        (Transport::UdpConnected, udp),
    ] {
        let attempts = run(vec![flows(transport, loopback(port), 3, 50)]).await;
        let mut by_flow: BTreeMap<u32, Vec<&Attempt>> = BTreeMap::new();
        for attempt in &attempts {
            assert!(
                matches!(&attempt.outcome, Outcome::Answered { answer, .. } if answer.nonce == attempt.nonce),
                "{attempt:?}"
            );
            by_flow.entry(exchange(attempt).flow).or_default().push(attempt);
        }
        assert_eq!(by_flow.len(), 3, "{transport:?}");
        for exchanges in by_flow.values() {
            let numbers: Vec<u32> = exchanges.iter().map(|one| exchange(one).sequence).collect();
            let expected: Vec<u32> = (0..u32::try_from(numbers.len()).expect("few")).collect();
            assert_eq!(numbers, expected, "without gaps");
            // A busy machine may skip a start time, but not many.
            assert!((5..=50).contains(&numbers.len()), "{numbers:?}");
            let sockets: BTreeSet<_> = exchanges.iter().map(|one| one.local).collect();
            assert_eq!(sockets.len(), 1, "one socket");
            let sources: BTreeSet<_> = exchanges
                .iter()
                .filter_map(|one| match &one.outcome {
                    Outcome::Answered { answer, .. } => Some(answer.source),
                    _ => None,
                })
                .collect();
            assert_eq!(sources.len(), 1, "as the server sees it, too");
            assert!(exchanges.iter().all(|one| exchange(one).socket == 0));
            let (first, last) = (exchanges[0].start_us, exchanges[exchanges.len() - 1].start_us);
            let least = 20_000 * u64::from(numbers[numbers.len() - 1]) / 2;
            assert!(last - first >= least, "one every 20 ms, not all at once");
        }
    }
}

#[tokio::test]
async fn requests_go_out_at_their_times_whether_those_before_were_answered_or_not() {
    let slow = Mode::Slow(Duration::from_millis(300));
    let (tcp, _) = server(slow, "b1", "127.0.0.1", &Sink::default()).await;
    let attempts = run(vec![flows(Transport::Tcp, loopback(tcp), 1, 5)]).await;
    let alone = one(entry(Transport::Tcp, loopback(tcp))).await;
    assert_eq!(alone.exchange, None, "a fresh socket is no flow");
    let first_end = attempts.iter().map(|one| one.end_us).min().expect("some");
    let last_start = attempts.iter().map(|one| one.start_us).max().expect("some");
    assert!(last_start < first_end, "{attempts:?}");
    assert!(
        attempts
            .iter()
            .all(|one| matches!(one.outcome, Outcome::Answered { .. }))
    );
}

#[tokio::test]
async fn a_request_that_asks_for_no_answer_is_logged_and_not_answered() {
    let log = Sink::default();
    let (_, udp) = server(Mode::Prompt, "b1", "127.0.0.1", &log).await;
    let mut entry = flows(Transport::Udp, loopback(udp), 2, 3);
    (entry.one_way, entry.limit_ms) = (true, 200);
    let attempts = run(vec![entry]).await;
    assert!(!attempts.is_empty());
    let logged: Vec<Served> = log.lines();
    let nonces: BTreeSet<&str> = logged.iter().map(|line| &*line.answer.nonce).collect();
    for attempt in &attempts {
        assert!(matches!(attempt.outcome, Outcome::Timeout { .. }), "{attempt:?}");
        assert!(nonces.contains(&*attempt.nonce), "{attempt:?}");
    }
}

#[tokio::test]
async fn an_unconnected_socket_survives_its_errors_and_a_connected_one_does_not() {
    // The broadcast address of the loopback device, which sockets may not send to without an option.
    let refused = SocketAddr::from((Ipv4Addr::new(127, 255, 255, 255), 9));
    let attempts = run(vec![flows(Transport::Udp, refused, 1, 5)]).await;
    assert!(attempts.len() > 1);
    for attempt in &attempts {
        assert!(
            matches!(&attempt.outcome, Outcome::Failed { stage: Stage::Send, errno } if errno == "EACCES"),
            "{attempt:?}"
        );
        assert_eq!(exchange(attempt).socket, 0);
    }
    let ports: BTreeSet<_> = attempts.iter().map(|one| one.local).collect();
    assert_eq!(ports.len(), 1, "one port");
    let free = UdpSocket::bind(loopback(0)).await.expect("bind");
    let closed = free.local_addr().expect("address");
    drop(free);
    let attempts = run(vec![flows(Transport::UdpConnected, closed, 1, 5)]).await;
    let sockets: BTreeSet<u32> = attempts.iter().map(|one| exchange(one).socket).collect();
    assert!(sockets.len() > 1, "{attempts:?}");
}

#[tokio::test]
async fn a_reset_fails_what_is_under_way_and_another_socket_follows() {
    let listener = TcpListener::bind(loopback(0)).await.expect("bind");
    let destination = listener.local_addr().expect("address");
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("accept");
            stream.set_zero_linger().expect("linger");
            let mut request = [0; 16];
            stream.read_exact(&mut request).await.expect("a request");
        }
    });
    let attempts = run(vec![flows(Transport::Tcp, destination, 1, 5)]).await;
    for attempt in &attempts {
        assert!(
            matches!(&attempt.outcome, Outcome::Failed { errno, .. } if errno == "ECONNRESET"),
            "{attempt:?}"
        );
    }
    let sockets: BTreeSet<u32> = attempts.iter().map(|one| exchange(one).socket).collect();
    assert!(sockets.len() > 1, "{sockets:?}");
}

#[tokio::test]
async fn an_end_between_two_exchanges_fails_the_next_at_once() {
    let listener = TcpListener::bind(loopback(0)).await.expect("bind");
    let destination = listener.local_addr().expect("address");
    tokio::spawn(async move {
        let (mut stream, client) = listener.accept().await.expect("accept");
        let mut request = vec![0; 1024];
        let length = stream.read(&mut request).await.expect("a request");
        let request: serde_json::Value = serde_json::from_slice(&request[..length]).expect("JSON");
        let answer = serde_json::json!({
            "identity": "b1/TCP/1", "source": client, "destination": client, "nonce": request["nonce"],
        });
        stream
            .write_all(format!("{answer}\n").as_bytes())
            .await
            .expect("an answer");
        // Ends the connection, and later ones are refused.
    });
    let mut entry = flows(Transport::Tcp, destination, 1, 3);
    entry.interval_ms = 1000;
    let attempts = run(vec![entry]).await;
    assert!(
        matches!(attempts[0].outcome, Outcome::Answered { .. }),
        "{attempts:?}"
    );
    let Outcome::Failed { stage, errno } = &attempts[1].outcome else {
        panic!("{attempts:?}")
    };
    assert_eq!(
        (*stage, errno.as_str()),
        (Stage::Receive, "unexpected end of file")
    );
    assert_eq!(exchange(&attempts[1]).sequence, 1);
    assert!(
        attempts[1].start_us - attempts[0].start_us < 1_000_000,
        "before its time"
    );
    assert_eq!(exchange(&attempts[2]).socket, 1);
}

#[tokio::test]
async fn a_lost_reply_times_out_and_its_flow_goes_on() {
    let socket = UdpSocket::bind(loopback(0)).await.expect("bind");
    let destination = socket.local_addr().expect("address");
    tokio::spawn(async move {
        let mut request = [0; 1024];
        for number in 0.. {
            let (length, client) = socket.recv_from(&mut request).await.expect("receive");
            let request: serde_json::Value = serde_json::from_slice(&request[..length]).expect("JSON");
            let answer = serde_json::json!({
                "identity": "b1/UDP/1", "source": client, "destination": client, "nonce": request["nonce"],
            });
            if number != 1 {
                socket
                    .send_to(answer.to_string().as_bytes(), client)
                    .await
                    .expect("send");
            }
        }
    });
    // Long enough for a second exchange, and for every answer, on a machine that is busy.
    let mut entry = flows(Transport::UdpConnected, destination, 1, 100);
    entry.limit_ms = 3000;
    let attempts = run(vec![entry]).await;
    let stage = Stage::Receive;
    let lost: Vec<u32> = attempts
        .iter()
        .filter(|one| one.outcome == Outcome::Timeout { stage })
        .map(|one| exchange(one).sequence)
        .collect();
    assert_eq!(lost, [1], "{attempts:?}");
    assert!(attempts.iter().all(|one| exchange(one).socket == 0));
}

#[tokio::test]
async fn a_server_that_ends_is_an_end_for_its_flows() {
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
    let (stop, port) = (server.stop(), server.tcp_ports().next().expect("TCP"));
    tokio::spawn(server.run());
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        stop.cancel();
    });
    let attempts = run(vec![flows(Transport::Tcp, loopback(port), 1, 25)]).await;
    let answered = attempts
        .iter()
        .filter(|one| matches!(one.outcome, Outcome::Answered { .. }))
        .count();
    assert!((1..=15).contains(&answered), "{answered}");
    let refused = attempts
        .iter()
        .filter(|one| matches!(&one.outcome, Outcome::Failed { errno, .. } if errno == "ECONNREFUSED"));
    assert!(refused.count() >= 1, "{attempts:?}");
}

#[test]
fn flows_that_make_no_sense_are_refused() {
    let plan = |flows: u32, interval: u32, more: &str| {
        format!(
            r#"{{"client":"c","entries":[{{"target":"x","transport":"TCP","address":"10.96.0.1","port":80,"count":9,"interval_ms":{interval},"limit_ms":9,"flows":{flows}{more}}}]}}"#
        )
    };
    assert!(client::parse(&plan(10, 100, "")).is_ok());
    for (line, named) in [
        (plan(0, 100, ""), "0 flows"),
        (plan(513, 100, ""), "513 flows"),
        (plan(1, 0, ""), "interval_ms 0"),
        (plan(1, 100, r#","until":"refused""#), "until"),
        (plan(1, 100, r#","source_ports":[9,8]"#), "source_ports 9 to 8"),
        (plan(3, 100, r#","source_ports":[8,9]"#), "source_ports for fewer"),
    ] {
        let error = client::parse(&line).expect_err("refused").to_string();
        assert!(error.contains(named), "{error}");
    }
}
