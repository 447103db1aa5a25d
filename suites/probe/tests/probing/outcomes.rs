//! Every outcome of an attempt, on loopback.

use std::net::{Ipv4Addr, SocketAddr};

use crate::common::{Sink, entry, one, run, server};
use oracle::history::{Attempt, Outcome, Served, Stage, Transport};
use probe::serve::{Mode, ServeConfig, ServeError, Server};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpSocket, TcpStream, UdpSocket},
};

const TRANSPORTS: [(Transport, &str); 4] = [
    (Transport::Tcp, "TCP"),
    (Transport::Http, "TCP"),
    (Transport::Udp, "UDP"),
    (Transport::UdpConnected, "UDP"),
];

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// A port without a listener: bound, so that no other socket has it, and closed again.
async fn closed_port() -> SocketAddr {
    let listener = TcpListener::bind(loopback(0)).await.expect("bind");
    listener.local_addr().expect("address")
}

/// The first of two adjacent ports that no socket has. The kernel assigns none of them to the tests beside this one: its range
/// begins at 32768 (`net.ipv4.ip_local_port_range`).
fn two_free_ports() -> u16 {
    let is_free = |port| {
        let address = (Ipv4Addr::UNSPECIFIED, port);
        std::net::TcpListener::bind(address).is_ok() && std::net::UdpSocket::bind(address).is_ok()
    };
    let begin = 20_000 + u16::try_from(std::process::id() % 5_000).expect("small") * 2;
    (begin..32_000)
        .step_by(2)
        .find(|first| is_free(*first) && is_free(first + 1))
        .expect("two free ports")
}

fn failed(attempt: &Attempt, stage: Stage, errno: &str) {
    assert_eq!(
        attempt.outcome,
        Outcome::Failed {
            stage,
            errno: errno.to_owned()
        }
    );
}

#[tokio::test]
async fn an_answer_names_server_transport_port_source_and_destination() {
    for address in ["127.0.0.1", "::1"] {
        let log = Sink::default();
        let (tcp, udp) = server(Mode::Prompt, "b1", address, &log).await;
        for (transport, name) in TRANSPORTS {
            let port = if name == "TCP" { tcp } else { udp };
            let destination = SocketAddr::new(address.parse().expect("address"), port);
            let attempt = one(entry(transport, destination)).await;
            let Outcome::Answered { answer, peer } = &attempt.outcome else {
                panic!("{transport:?} to {destination}: {:?}", attempt.outcome)
            };
            assert_eq!(answer.identity, format!("b1/{name}/{port}"));
            assert_eq!(answer.destination, destination);
            assert_eq!(answer.nonce, attempt.nonce);
            assert_eq!(*peer, destination);
            let local = attempt.local.expect("a local address");
            assert_eq!(answer.source.port(), local.port());
            if transport != Transport::Udp {
                assert_eq!(answer.source, local);
            }
            assert!(attempt.start_us <= attempt.end_us);
            let logged: Vec<Served> = log.lines();
            let line = logged.last().expect("the server logs before it answers");
            assert_eq!(line.answer, *answer);
            assert!(
                (attempt.start_us..=attempt.end_us).contains(&line.time_us),
                "one clock"
            );
        }
    }
}

#[tokio::test]
async fn a_reply_leaves_from_the_address_that_was_asked() {
    let (_, udp) = server(Mode::Prompt, "b1", "0.0.0.0", &Sink::default()).await;
    let asked: SocketAddr = format!("127.0.0.7:{udp}").parse().expect("address");
    for transport in [Transport::Udp, Transport::UdpConnected] {
        match one(entry(transport, asked)).await.outcome {
            Outcome::Answered { answer, peer } => {
                assert_eq!((answer.destination, peer), (asked, asked));
            }
            other => panic!("{transport:?}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_dual_stack_server_sees_an_ipv4_client_as_one() {
    let (tcp, udp) = server(Mode::Prompt, "b1", "::", &Sink::default()).await;
    for (transport, port) in [(Transport::Tcp, tcp), (Transport::Udp, udp)] {
        match one(entry(transport, loopback(port))).await.outcome {
            Outcome::Answered { answer, .. } => {
                assert_eq!(answer.destination, loopback(port));
                assert!(answer.source.is_ipv4());
            }
            other => panic!("{transport:?}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_closed_port_refuses_where_the_socket_can_know() {
    let closed = closed_port().await;
    failed(
        &one(entry(Transport::Tcp, closed)).await,
        Stage::Handshake,
        "ECONNREFUSED",
    );
    failed(
        &one(entry(Transport::UdpConnected, closed)).await,
        Stage::Receive,
        "ECONNREFUSED",
    );
    // An unconnected socket gets no error from the kernel (udp(7)).
    let mut unconnected = entry(Transport::Udp, closed);
    unconnected.limit_ms = 100;
    assert_eq!(
        one(unconnected).await.outcome,
        Outcome::Timeout {
            stage: Stage::Receive
        }
    );
}

#[tokio::test]
async fn what_the_kernel_refuses_by_itself_has_its_errno_and_no_address() {
    // connect(2) to the limited broadcast address, with or without a default route.
    let nowhere: SocketAddr = "255.255.255.255:9".parse().expect("address");
    let attempt = one(entry(Transport::Tcp, nowhere)).await;
    failed(&attempt, Stage::Connect, "ENETUNREACH");
    assert_eq!(attempt.local, None);
}

#[tokio::test]
async fn silence_times_out_in_the_call_that_waits() {
    let silent = UdpSocket::bind(loopback(0)).await.expect("bind");
    let accepts_never = TcpListener::bind(loopback(0)).await.expect("bind");
    let cases = [
        (Transport::Udp, silent.local_addr().expect("address")),
        (Transport::UdpConnected, silent.local_addr().expect("address")),
        (Transport::Tcp, accepts_never.local_addr().expect("address")),
    ];
    for (transport, destination) in cases {
        let mut plan = entry(transport, destination);
        plan.limit_ms = 100;
        let attempt = one(plan).await;
        assert_eq!(
            attempt.outcome,
            Outcome::Timeout {
                stage: Stage::Receive
            },
            "{transport:?}"
        );
        assert!(attempt.end_us - attempt.start_us >= 100_000);
        assert!(attempt.local.is_some());
    }
}

#[tokio::test]
async fn a_full_backlog_times_out_in_connect() {
    let socket = TcpSocket::new_v4().expect("socket");
    socket.bind(loopback(0)).expect("bind");
    let listener = socket.listen(1).expect("listen");
    let destination = listener.local_addr().expect("address");
    let mut queued = Vec::new();
    let limit = std::time::Duration::from_millis(200);
    while let Ok(stream) = tokio::time::timeout(limit, TcpStream::connect(destination)).await {
        queued.push(stream.expect("connect"));
        assert!(queued.len() < 16, "the backlog never fills");
    }
    let mut plan = entry(Transport::Tcp, destination);
    plan.limit_ms = 200;
    let attempt = one(plan).await;
    assert_eq!(
        attempt.outcome,
        Outcome::Timeout {
            stage: Stage::Handshake
        }
    );
    let local = attempt.local.expect("its port was known while it connected");
    assert!(local.ip().is_loopback() && local.port() != 0, "{local}");
}

#[tokio::test]
async fn what_is_no_probe_server_is_garbled() {
    for said in ["HTTP/1.0 400 Bad Request\r\n", ""] {
        let listener = TcpListener::bind(loopback(0)).await.expect("bind");
        let destination = listener.local_addr().expect("address");
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("accept");
            let mut request = [0; 256];
            tokio::io::AsyncReadExt::read(&mut stream, &mut request)
                .await
                .expect("read");
            stream.write_all(said.as_bytes()).await.expect("write");
        });
        let attempt = one(entry(Transport::Tcp, destination)).await;
        assert_eq!(
            attempt.outcome,
            Outcome::Garbled {
                said: said.to_owned()
            }
        );
    }
}

#[tokio::test]
async fn datagrams_that_are_no_answers_are_garbled_and_those_for_others_are_passed_over() {
    let socket = UdpSocket::bind(loopback(0)).await.expect("bind");
    let destination = socket.local_addr().expect("address");
    tokio::spawn(async move {
        let late =
            r#"{"identity":"b9/UDP/1","source":"127.0.0.1:1","destination":"127.0.0.1:2","nonce":"old"}"#;
        let mut request = [0; 256];
        loop {
            let (_, client) = socket.recv_from(&mut request).await.expect("receive");
            for reply in [late, "what?"] {
                socket.send_to(reply.as_bytes(), client).await.expect("send");
            }
        }
    });
    for transport in [Transport::Udp, Transport::UdpConnected] {
        let attempt = one(entry(transport, destination)).await;
        assert_eq!(
            attempt.outcome,
            Outcome::Garbled {
                said: "what?".to_owned()
            }
        );
    }
}

#[tokio::test]
async fn attempts_are_dialled_from_the_configured_ports_in_turn() {
    let (tcp, udp) = server(Mode::Prompt, "b1", "127.0.0.1", &Sink::default()).await;
    let first = two_free_ports();
    for (transport, port) in [(Transport::Tcp, tcp), (Transport::UdpConnected, udp)] {
        let mut entry = entry(transport, loopback(port));
        (entry.count, entry.source_ports) = (4, Some([first, first + 1]));
        let dialled = run(vec![entry]).await;
        let ports: Vec<u16> = dialled
            .iter()
            .filter_map(|attempt| Some(attempt.local?.port()))
            .collect();
        assert_eq!(ports, [first, first + 1, first, first + 1], "{dialled:?}");
    }
}

#[tokio::test]
async fn connections_follow_each_other_from_one_port_at_once() {
    let (tcp, _) = server(Mode::Prompt, "b1", "127.0.0.1", &Sink::default()).await;
    let port = two_free_ports();
    let mut entry = entry(Transport::Tcp, loopback(tcp));
    (entry.count, entry.interval_ms, entry.source_ports) = (50, 0, Some([port, port]));
    for attempt in run(vec![entry]).await {
        assert!(matches!(attempt.outcome, Outcome::Answered { .. }), "{attempt:?}");
    }
}

#[tokio::test]
async fn sctp_is_served_where_the_kernel_has_it() {
    let config = ServeConfig {
        name: "b1".to_owned(),
        addresses: vec![Ipv4Addr::LOCALHOST.into()],
        tcp: Vec::new(),
        udp: Vec::new(),
        sctp: vec![0],
        pod: None,
        mode: Mode::Prompt,
    };
    let server = match Server::bind(&config, Sink::default()) {
        Err(error @ ServeError::NoSctp) => {
            assert!(error.to_string().contains("modprobe sctp"), "{error}");
            let attempt = one(entry(Transport::Sctp, loopback(9))).await;
            failed(&attempt, Stage::Socket, "EPROTONOSUPPORT");
            testing::skip(&testing::current(), "this kernel does not have SCTP");
            return;
        }
        bound => bound.expect("bind"),
    };
    let port = server.sctp_ports().next().expect("SCTP");
    tokio::spawn(server.run());
    let attempt = one(entry(Transport::Sctp, loopback(port))).await;
    let Outcome::Answered { answer, .. } = &attempt.outcome else {
        panic!("{attempt:?}")
    };
    assert_eq!(answer.identity, format!("b1/SCTP/{port}"));
}
