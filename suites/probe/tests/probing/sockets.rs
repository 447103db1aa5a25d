//! Sockets that stay open: one socket sends to one destination after the other, and stays the same.

use std::{collections::BTreeSet, net::SocketAddr, process::Command, time::Duration};

use crate::common::{Sink, entry, one, server};
use oracle::history::{Attempt, Exchange, Outcome, Round, Stage, Transport};
use probe::{client::persistent_sockets::keep, serve::Mode};
use rtnetlink::LinkUnspec;
use testing::isolation::Own;
use tokio_util::sync::CancellationToken;

const BOTH: [Transport; 2] = [Transport::Udp, Transport::UdpConnected];

fn round(transport: Transport, destination: SocketAddr, sockets: u32) -> Round {
    Round {
        target: destination.to_string(),
        transport,
        address: destination.ip(),
        port: destination.port(),
        sockets,
        anew: false,
        stay: false,
        source_port: None,
        fragments: Vec::new(),
        bytes: 0,
        watched: false,
        limit_ms: 10_000,
    }
}

/// The attempts of rounds, each in the order of its sockets.
async fn keep_for(rounds: &[Round]) -> Vec<Vec<Attempt>> {
    let mut lines = Vec::new();
    for round in rounds {
        lines.extend(serde_json::to_vec(round).expect("a line"));
        lines.push(b'\n');
    }
    let sink = Sink::default();
    keep("c1", &*lines, sink.clone(), CancellationToken::new())
        .await
        .expect("the client ends well");
    let mut all: Vec<Attempt> = sink.lines();
    let mut by_round = Vec::new();
    for round in rounds {
        let mut attempts: Vec<Attempt> = all.drain(..round.sockets as usize).collect();
        attempts.sort_by_key(|one| exchange(one).flow);
        by_round.push(attempts);
    }
    assert_eq!(all, [], "one line for each socket of each round");
    by_round
}

fn exchange(attempt: &Attempt) -> Exchange {
    attempt.exchange.expect("an exchange")
}

/// The backend that answered, and the socket's peer.
fn answered(attempts: &[Attempt]) -> BTreeSet<(String, SocketAddr)> {
    let of = |attempt: &Attempt| match &attempt.outcome {
        Outcome::Answered { answer, peer } if answer.nonce == attempt.nonce => {
            (answer.identity.clone(), *peer)
        }
        _ => panic!("{attempt:?}"),
    };
    attempts.iter().map(of).collect()
}

fn ports(attempts: &[Attempt]) -> Vec<u16> {
    let port = |attempt: &Attempt| attempt.local.expect("a socket").port();
    attempts.iter().map(port).collect()
}

/// UDP ports of two servers.
async fn two_servers() -> [SocketAddr; 2] {
    two_of_each().await.map(|(_, udp)| udp)
}

/// TCP ports of two servers, and their UDP ports.
async fn two_of_each() -> [(SocketAddr, SocketAddr); 2] {
    let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let (tcp, udp) = server(Mode::Prompt, "b1", "127.0.0.1", &Sink::default()).await;
    let first = (at(tcp), at(udp));
    let (tcp, udp) = server(Mode::Prompt, "b2", "127.0.0.1", &Sink::default()).await;
    [first, (at(tcp), at(udp))]
}

#[tokio::test]
async fn each_socket_sends_to_one_destination_after_the_other() {
    let [first, second] = two_servers().await;
    for transport in BOTH {
        let alone = one(entry(transport, first)).await;
        assert_eq!(alone.exchange, None, "a fresh socket is none of them");
        let seen = keep_for(&[
            round(transport, first, 3),
            round(transport, second, 3),
            round(transport, first, 3),
        ])
        .await;
        for (at, (name, address)) in [("b1", first), ("b2", second), ("b1", first)].iter().enumerate() {
            let by = (format!("{name}/UDP/{}", address.port()), *address);
            assert_eq!(answered(&seen[at]), BTreeSet::from([by]), "{transport:?}");
            assert_eq!(ports(&seen[at]), ports(&seen[0]), "the same sockets");
            for (flow, attempt) in (0..).zip(&seen[at]) {
                let sequence = u32::try_from(at).expect("few");
                let expected = Exchange {
                    flow,
                    socket: 0,
                    sequence,
                };
                assert_eq!(exchange(attempt), expected);
                assert_eq!(attempt.target, address.to_string());
            }
        }
    }
}

#[tokio::test]
async fn a_round_takes_the_oldest_and_opens_what_is_missing() {
    let [first, second] = two_servers().await;
    let transport = Transport::Udp;
    let seen = keep_for(&[
        round(transport, first, 2),
        round(transport, first, 4),
        round(transport, second, 1),
    ])
    .await;
    assert_eq!(ports(&seen[1])[..2], ports(&seen[0]));
    assert_eq!(ports(&seen[2]), ports(&seen[0])[..1]);
    assert_eq!(ports(&seen[1]).iter().collect::<BTreeSet<_>>().len(), 4);
}

#[tokio::test]
async fn others_are_opened_at_the_ports_of_those_that_are_closed() {
    let [first, second] = two_servers().await;
    for transport in BOTH {
        let anew = Round {
            anew: true,
            ..round(transport, second, 20)
        };
        let seen = keep_for(&[
            round(transport, first, 20),
            anew.clone(),
            round(transport, first, 20),
        ])
        .await;
        assert_eq!(ports(&seen[1]), ports(&seen[0]));
        assert_eq!(ports(&seen[2]), ports(&seen[0]));
        assert!(seen[1].iter().all(|one| exchange(one).socket == 1));
        assert!(seen[2].iter().all(|one| exchange(one).socket == 1));
        assert_eq!(answered(&seen[1]).len(), 1);
    }
}

#[tokio::test]
async fn sockets_of_each_transport_are_kept_by_themselves() {
    let [first, _] = two_servers().await;
    let seen = keep_for(&BOTH.map(|transport| round(transport, first, 2))).await;
    assert!(seen.iter().flatten().all(|one| exchange(one).sequence == 0));
    let ports: BTreeSet<u16> = seen.iter().flat_map(|attempts| ports(attempts)).collect();
    assert_eq!(ports.len(), 4);
}

#[tokio::test]
async fn a_late_reply_is_not_taken_for_that_of_the_next_exchange() {
    let slow = Mode::Slow(Duration::from_millis(300));
    let (_, late) = server(slow, "late", "127.0.0.1", &Sink::default()).await;
    let slower = Mode::Slow(Duration::from_millis(900));
    let (_, later) = server(slower, "later", "127.0.0.1", &Sink::default()).await;
    let [late, later] = [late, later].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let seen = keep_for(&[
        Round {
            limit_ms: 50,
            ..round(Transport::Udp, late, 2)
        },
        round(Transport::Udp, later, 2),
    ])
    .await;
    let stage = Stage::Receive;
    assert!(
        seen[0]
            .iter()
            .all(|one| one.outcome == Outcome::Timeout { stage })
    );
    let by = (format!("later/UDP/{}", later.port()), later);
    assert_eq!(answered(&seen[1]), BTreeSet::from([by]));
    assert_eq!(ports(&seen[1]), ports(&seen[0]));
}

#[tokio::test]
async fn a_connection_is_kept_wherever_a_round_leads() {
    let [(first, _), (second, _)] = two_of_each().await;
    let fresh = Round {
        anew: true,
        source_port: Some(0),
        ..round(Transport::Tcp, second, 2)
    };
    let seen = keep_for(&[
        round(Transport::Tcp, first, 2),
        round(Transport::Tcp, second, 2),
        fresh,
    ])
    .await;
    for at in [0, 1] {
        let by = (format!("b1/TCP/{}", first.port()), first);
        assert_eq!(answered(&seen[at]), BTreeSet::from([by]));
        assert_eq!(ports(&seen[at]), ports(&seen[0]));
    }
    let by = (format!("b2/TCP/{}", second.port()), second);
    assert_eq!(answered(&seen[2]), BTreeSet::from([by]));
    assert_ne!(ports(&seen[2]), ports(&seen[0]), "the kernel chooses");
}

#[tokio::test]
async fn a_connection_that_has_failed_stays_so() {
    let (refusing, _) = server(Mode::Refuse, "r", "127.0.0.1", &Sink::default()).await;
    let destination = SocketAddr::from(([127, 0, 0, 1], refusing));
    let seen = keep_for(&[
        round(Transport::Tcp, destination, 1),
        round(Transport::Tcp, destination, 1),
    ])
    .await;
    for attempts in &seen {
        assert!(!matches!(attempts[0].outcome, Outcome::Answered { .. }));
        assert_eq!(exchange(&attempts[0]).socket, 0, "no other was opened");
    }
}

#[tokio::test]
async fn a_socket_is_bound_to_the_port_of_the_round() {
    let [first, _] = two_servers().await;
    let free = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let port = free.local_addr().expect("its address").port();
    drop(free);
    let bound = Round {
        source_port: Some(port),
        ..round(Transport::Udp, first, 1)
    };
    assert_eq!(ports(&keep_for(&[bound]).await[0]), [port]);
}

#[tokio::test]
async fn datagrams_of_a_size_go_there_and_back_whole() {
    let [first, _] = two_servers().await;
    for transport in BOTH {
        let large = Round {
            bytes: 4000,
            ..round(transport, first, 3)
        };
        let by = (format!("b1/UDP/{}", first.port()), first);
        assert_eq!(answered(&keep_for(&[large]).await[0]), BTreeSet::from([by]));
    }
}

#[tokio::test]
async fn datagrams_that_are_not_as_they_were_sent_are_no_request_and_no_answer() {
    let [first, _] = two_servers().await;
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0")
        .await
        .expect("a socket");
    let mut request = br#"{"nonce":"n","bytes":2000}"#.to_vec();
    request.resize(2000, b'\n');
    socket.send_to(&request, first).await.expect("it is sent");
    let mut answer = [0; 200];
    let length = socket.recv(&mut answer).await.expect("an answer");
    let said = String::from_utf8_lossy(&answer[..length]);
    assert!(said.contains("not as it was sent"), "{said}");
    // A server whose answers have no padding.
    let server = tokio::net::UdpSocket::bind("127.0.0.1:0")
        .await
        .expect("a socket");
    let address = server.local_addr().expect("its address");
    tokio::spawn(async move {
        let mut request = [0; 4096];
        while let Ok((_, client)) = server.recv_from(&mut request).await {
            let line = String::from_utf8_lossy(&request);
            let nonce = line.split('"').nth(3).unwrap_or_default();
            let source = format!(r#""source":"{client}","destination":"{client}""#);
            let answer = format!("{{\"identity\":\"b/UDP/1\",{source},\"nonce\":\"{nonce}\"}}\n");
            let _ = server.send_to(answer.as_bytes(), client).await;
        }
    });
    let large = Round {
        bytes: 2000,
        ..round(Transport::Udp, address, 1)
    };
    let seen = keep_for(&[large, round(Transport::Udp, address, 1)]).await;
    let garbled =
        |one: &Attempt| matches!(&one.outcome, Outcome::Garbled { said } if said.contains("not the 2000"));
    assert!(garbled(&seen[0][0]), "{:?}", seen[0]);
    assert!(matches!(seen[1][0].outcome, Outcome::Answered { .. }));
}

#[tokio::test]
async fn fragments_of_one_request_do_not_wait_for_answers_to_others() {
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    // It answers nothing.
    let server = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let lost = Round {
        fragments: vec![0, 1],
        limit_ms: 3000,
        ..round(Transport::Udp, server.local_addr().expect("its address"), 32)
    };
    let seen = keep_for(&[lost]).await;
    let began = seen[0].iter().map(|one| one.start_us).max();
    let ended = seen[0].iter().map(|one| one.end_us).min();
    assert!(began < ended, "{:?}", seen[0]);
    for attempt in &seen[0] {
        let is_lost = matches!(
            attempt.outcome,
            Outcome::Timeout {
                stage: Stage::Receive
            }
        );
        assert!(is_lost, "{attempt:?}");
    }
}

/// The loopback device is up, in a network namespace of the test's own.
async fn loopback_up() {
    let (connection, netlink, _) = rtnetlink::new_connection().expect("a socket");
    tokio::spawn(connection);
    // Index of the loopback device in every network namespace.
    let up = LinkUnspec::new_with_index(1).up().build();
    netlink.link().set(up).execute().await.expect("it is up");
}

// As in a container of Docker's, whose rules for its name server need conntrack: the kernel puts fragments together before
// they are sent.
#[tokio::test]
async fn fragments_go_out_in_their_order_where_connections_are_tracked() {
    let test = testing::current();
    if Own::of(&test).is_none() || !testing::programs_or_skip(&test, &["nft"], &[]) {
        return;
    }
    loopback_up().await;
    let rules =
        "table ip tracked { chain out { type filter hook output priority 0; ct state new accept; }; }";
    let nft = Command::new("nft").arg(rules).status().expect("nft");
    assert!(nft.success(), "{rules}");
    let (_, port) = server(Mode::Prompt, "b1", "127.0.0.1", &Sink::default()).await;
    let order = vec![2, 0, 3, 1];
    let large = Round {
        fragments: order,
        bytes: 4000,
        watched: true,
        ..round(Transport::Udp, SocketAddr::from(([127, 0, 0, 1], port)), 2)
    };
    for attempt in &keep_for(&[large]).await[0] {
        assert!(matches!(attempt.outcome, Outcome::Answered { .. }), "{attempt:?}");
        let fragments = attempt.fragments.as_ref().expect("it was watched");
        assert_eq!(fragments.sent, [2016, 0, 3024, 1008]);
    }
}

// In a network namespace of its own, where no connections are tracked.
#[tokio::test]
async fn fragments_are_seen_as_they_go_out() {
    if Own::of(&testing::current()).is_none() {
        return;
    }
    loopback_up().await;
    for address in ["127.0.0.1", "::1"] {
        let (_, port) = server(Mode::Prompt, "b1", address, &Sink::default()).await;
        let server = SocketAddr::new(address.parse().expect("an address"), port);
        let large = Round {
            fragments: vec![2, 0, 3, 1],
            bytes: 4000,
            watched: true,
            ..round(Transport::Udp, server, 2)
        };
        let whole = Round {
            fragments: Vec::new(),
            ..large.clone()
        };
        let seen = keep_for(&[large, whole]).await;
        for attempt in &seen[0] {
            assert!(matches!(attempt.outcome, Outcome::Answered { .. }), "{attempt:?}");
            let fragments = attempt.fragments.as_ref().expect("it was watched");
            assert_eq!(fragments.sent, [2016, 0, 3024, 1008]);
            assert_eq!(fragments.to, BTreeSet::from([server.ip()]));
            assert_eq!(fragments.received, 0, "of an answer that the device takes whole");
        }
        let whole = seen[1][0].fragments.as_ref().expect("it was watched");
        assert_eq!(whole.sent, [0u16; 0]);
    }
}

#[tokio::test]
async fn fragments_in_any_order_are_one_request() {
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    let [first, _] = two_servers().await;
    let by = (format!("b1/UDP/{}", first.port()), first);
    for order in [&[0, 1][..], &[1, 0], &[2, 0, 1]] {
        let in_fragments = Round {
            fragments: order.to_vec(),
            ..round(Transport::Udp, first, 1)
        };
        let seen = keep_for(&[in_fragments]).await;
        assert_eq!(answered(&seen[0]), BTreeSet::from([by.clone()]), "{order:?}");
    }
}
