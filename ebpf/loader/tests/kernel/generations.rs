//! A service is switched between backends under load.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddrV4,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use lb_abi::Counter;

use crate::support::{Node, Protocol, TcpServer, UdpServer, dial, isolated, receive, switch, udp_client};

/// How often the service is switched while clients hammer it.
const SWITCHES: u32 = 1000;
/// Each set is of this many backends.
const BACKENDS: u8 = 3;

/// Two disjoint sets.
fn two_sets<T>(start: impl Fn(u8) -> T, address: impl Fn(&T) -> SocketAddrV4) -> [Vec<SocketAddrV4>; 2] {
    [1, 1 + BACKENDS].map(|first| {
        (first..first + BACKENDS)
            .map(|last| address(&start(last)))
            .collect()
    })
}

/// Switches a service port between two sets of backends while clients ask for it; whatever a client sees that is
/// not one of those backends panics.
fn hammer(
    node: &Node,
    protocol: Protocol,
    sets: &[Vec<SocketAddrV4>; 2],
    ask: fn(SocketAddrV4) -> SocketAddrV4,
) {
    const CLIENTS: usize = 2;
    let datapath = node.start();
    let [first, second] = sets;
    let cluster_ip = node.service(&datapath, protocol, 80, first);
    let done = AtomicBool::new(false);
    let answered = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let mut answers = BTreeMap::<SocketAddrV4, u32>::new();
                    while !done.load(Ordering::Relaxed) {
                        *answers.entry(ask(cluster_ip)).or_default() += 1;
                    }
                    answers
                })
            })
            .collect();
        for generation in 2..2 + SWITCHES {
            let set = if generation.is_multiple_of(2) {
                second
            } else {
                first
            };
            switch(&datapath, protocol, 80, generation, set);
            if clients.iter().any(thread::ScopedJoinHandle::is_finished) {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
        let answers = clients
            .into_iter()
            .map(|client| client.join().expect("a client saw something else"));
        answers.fold(BTreeMap::<SocketAddrV4, u32>::new(), |mut sum, answers| {
            for (address, count) in answers {
                *sum.entry(address).or_default() += count;
            }
            sum
        })
    });
    let all: BTreeSet<SocketAddrV4> = sets.iter().flatten().copied().collect();
    let seen: BTreeSet<SocketAddrV4> = answered.keys().copied().collect();
    assert_eq!(
        seen, all,
        "every backend of both sets answered, and nobody else: {answered:?}"
    );
    let counts = datapath.maps().counters().expect("the counters are read");
    for never in [
        Counter::SocketHole,
        Counter::ConnectRefused,
        Counter::SendmsgRefused,
        Counter::ReverseFull,
    ] {
        assert_eq!(counts.get(never), 0, "{never:?} in {counts:?}");
    }
    let slots = datapath.maps().slots.entries().expect("the slots are read");
    assert_eq!(
        slots.len(),
        usize::from(BACKENDS),
        "only the current generation is left: {slots:?}"
    );
}

#[test]
fn a_thousand_switches_under_tcp_clients_leave_no_hole() {
    isolated(|node| {
        let sets = two_sets(TcpServer::start, |server| server.address);
        hammer(node, Protocol::Tcp, &sets, |cluster_ip| {
            let (identity, peer) = dial(cluster_ip).expect("a connection");
            assert_eq!(peer, cluster_ip);
            identity
        });
    });
}

#[test]
fn a_thousand_switches_under_udp_clients_leave_no_hole() {
    isolated(|node| {
        let sets = two_sets(UdpServer::start, |server| server.address);
        hammer(node, Protocol::Udp, &sets, |cluster_ip| {
            let client = udp_client();
            client.send_to(b"who", cluster_ip).expect("sent");
            let (identity, source) = receive(&client).expect("an answer");
            assert_eq!(source, cluster_ip);
            identity
        });
    });
}
