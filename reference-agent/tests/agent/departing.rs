//! UDP flows and sockets whose backend serves no more, or whose frontend has moved, in memory: the worker.

use std::{net::SocketAddr, time::Duration};

use lb_abi::{
    Backend, BackendId, Chosen, ChosenKey, Flow, Port, ServiceId, SocketRevnatKey, TCP, Tuple, UDP,
};
use reference_agent::{
    datapath::Datapath as _,
    metrics::Metrics,
    reconcile::{Bounded, Departed, MovedFrontend},
    testing::{node::Node, objects::address},
    udp::{Departures, RETRY, TRIES, Worker},
};

const VIP: &str = "UDP 10.96.0.1:53";

/// A worker at a node; it ends with the runtime.
fn started(node: &Node) -> (Departures, Metrics) {
    let metrics = Metrics::new();
    let connections = node.open().connections().expect("in memory");
    let (worker, departures) = Worker::new(connections, metrics.clone());
    tokio::spawn(worker.run());
    (departures, metrics)
}

fn departed(service: ServiceId, backend: &str, id: BackendId) -> Departed {
    Departed {
        service,
        frontends: [address(VIP)].into(),
        backend: address(backend),
        id,
    }
}

fn told<T>(listed: Vec<T>) -> Bounded<T> {
    Bounded { listed, unlisted: 0 }
}

fn socket(cookie: u64, backend: &str) -> SocketRevnatKey {
    let at = address(backend);
    let backend = Backend {
        address: at.address.into(),
        port: Port::new(at.port),
        protocol: UDP,
        flags: 0,
    };
    SocketRevnatKey {
        cookie,
        backend,
        pad: 0,
    }
}

fn flow(service: ServiceId, backend: BackendId, to: &str) -> (Tuple, Flow) {
    let client: SocketAddr = "10.0.9.9:4000".parse().expect("an address");
    let tuple = |to: &str| {
        let at = address(to);
        Tuple {
            source: client.ip().into(),
            destination: at.address.into(),
            source_port: Port::new(client.port()),
            destination_port: Port::new(at.port),
            protocol: UDP,
            pad: [0; 3],
        }
    };
    let value = Flow {
        to: tuple(to),
        seen: 0,
        last_seen: 0,
        service,
        backend,
        flags: 0,
        pad: 0,
        claim: 0,
    };
    (tuple(VIP), value)
}

/// Looks until something holds.
async fn until(mut holds: impl FnMut() -> bool) {
    let looking = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(testing::patience::LIMIT, looking)
        .await
        .expect("in time");
}

#[tokio::test]
async fn flows_and_sockets_of_a_departed_backend_are_ended_and_others_are_not() {
    let node = Node::new();
    let (departures, metrics) = started(&node);
    let (key, value) = flow(3, 7, "UDP 10.0.0.1:5353");
    node.note_flow(key, value);
    let (mut other, value) = flow(3, 8, "UDP 10.0.0.2:5353");
    other.source_port = Port::new(4001);
    node.note_flow(other, value);
    let frontend = address(VIP).frontend_key();
    node.note_socket(socket(1, "UDP 10.0.0.1:5353"), frontend, true);
    node.note_socket(socket(2, "UDP 10.0.0.2:5353"), frontend, true);
    node.note_socket(socket(3, "UDP 10.0.0.1:5353"), frontend, false);
    departures.send(
        told(vec![departed(3, "UDP 10.0.0.1:5353", 7)]),
        Bounded::default(),
    );
    until(|| node.ended() == [1].into()).await;
    assert_eq!(node.flows(), 1);
    until(|| metrics.udp_sockets_ended.at([]).get() == 1).await;
    assert_eq!(metrics.udp_flows_ended.at([]).get(), 1);
}

#[tokio::test]
async fn a_socket_that_is_connected_only_just_after_is_ended_too() {
    let node = Node::new();
    let (departures, metrics) = started(&node);
    let frontend = address(VIP).frontend_key();
    let connecting = socket(1, "UDP 10.0.0.1:5353");
    node.note_socket(connecting, frontend, false);
    // The first look finds it unconnected; by the second one its call has returned.
    let (key, value) = flow(3, 7, "UDP 10.0.0.1:5353");
    node.note_flow(key, value);
    departures.send(
        told(vec![departed(3, "UDP 10.0.0.1:5353", 7)]),
        Bounded::default(),
    );
    until(|| metrics.udp_flows_ended.at([]).get() == 1).await;
    node.note_socket(connecting, frontend, true);
    until(|| node.ended() == [1].into()).await;
}

#[tokio::test]
async fn what_fails_is_tried_again_and_counted() {
    let node = Node::new();
    let (departures, metrics) = started(&node);
    let frontend = address(VIP).frontend_key();
    node.note_socket(socket(1, "UDP 10.0.0.1:5353"), frontend, true);
    node.fail_to_end(2);
    departures.send(
        told(vec![departed(3, "UDP 10.0.0.1:5353", 7)]),
        Bounded::default(),
    );
    until(|| node.ended() == [1].into()).await;
    assert_eq!(metrics.udp_failures.at([]).get(), 2);
    assert!(
        RETRY * 2_u32.pow(TRIES) < Duration::from_secs(30),
        "a batch that fails does not hold others up for long"
    );
}

#[tokio::test]
async fn of_an_earlier_start_and_of_too_many_everything_goes_that_nobody_has() {
    let node = Node::new();
    let (departures, _metrics) = started(&node);
    let frontend = address(VIP).frontend_key();
    node.note_socket(socket(1, "UDP 10.0.0.1:5353"), frontend, true);
    let (key, value) = flow(3, 7, "UDP 10.0.0.1:5353");
    node.note_flow(key, value);
    departures.send(
        told(vec![departed(0, "UDP 10.0.0.1:5353", 7)]),
        Bounded::default(),
    );
    until(|| node.ended() == [1].into()).await;
    assert_eq!(node.flows(), 0);
    node.note_socket(socket(2, "UDP 10.0.0.2:5353"), frontend, true);
    let unlisted = Bounded {
        listed: Vec::new(),
        unlisted: 1,
    };
    departures.send(unlisted, Bounded::default());
    until(|| node.ended() == [1, 2].into()).await;
}

/// A frontend that has no service port any more.
fn moved() -> MovedFrontend {
    MovedFrontend {
        frontend: address(VIP),
        backends: [address("UDP 10.0.0.2:5353")].into(),
    }
}

#[tokio::test]
async fn flows_sockets_and_choices_of_a_frontend_that_has_moved_are_ended_and_others_are_not() {
    let node = Node::new();
    let (departures, _metrics) = started(&node);
    let (key, value) = flow(3, 7, "UDP 10.0.0.1:5353");
    node.note_flow(key, value);
    node.note_flow(
        Tuple {
            destination_port: Port::new(54),
            ..key
        },
        value,
    );
    let frontend = address(VIP).frontend_key();
    let other = address("UDP 10.96.0.2:53").frontend_key();
    node.note_socket(socket(1, "UDP 10.0.0.1:5353"), frontend, true);
    node.note_socket(socket(2, "UDP 10.0.0.2:5353"), frontend, true);
    node.note_socket(socket(3, "UDP 10.0.0.1:5353"), other, true);
    for (cookie, frontend) in [(4, frontend), (5, other)] {
        let key = ChosenKey {
            cookie,
            frontend,
            pad: 0,
        };
        let chosen = Chosen {
            service: 3,
            backend: 7,
        };
        node.note_choice(key, chosen);
    }
    departures.send(Bounded::default(), told(vec![moved()]));
    until(|| node.ended() == [1].into()).await;
    assert_eq!(node.flows(), 1);
    assert_eq!(node.choices(), [5].into());
}

#[tokio::test]
async fn a_flow_that_a_packet_brings_back_while_it_is_removed_goes_too() {
    let node = Node::new();
    let (departures, metrics) = started(&node);
    let (key, value) = flow(3, 7, "UDP 10.0.0.1:5353");
    node.note_returning_flow(key, value);
    departures.send(Bounded::default(), told(vec![moved()]));
    until(|| metrics.udp_flows_ended.at([]).get() == 2).await;
    assert_eq!(node.flows(), 0);
}

/// A TCP socket that was sent to a backend of a frontend, and waits for its answer.
fn note_asking(node: &Node, cookie: u64, frontend: &str, backend: &str) {
    let mut key = socket(cookie, backend);
    key.backend.protocol = TCP;
    node.note_socket(key, address(frontend).frontend_key(), false);
}

fn departed_tcp(backend: &str) -> Departed {
    Departed {
        service: 3,
        frontends: [address("TCP 10.96.0.1:80"), address("TCP 0.0.0.0:30080")].into(),
        backend: address(backend),
        id: 7,
    }
}

#[tokio::test]
async fn connections_that_a_departed_backend_has_not_answered_are_ended_and_others_are_not() {
    let node = Node::new();
    let (departures, metrics) = started(&node);
    let (gone, stays) = ("TCP 10.0.0.1:8080", "TCP 10.0.0.2:8080");
    note_asking(&node, 1, "TCP 10.96.0.1:80", gone);
    note_asking(&node, 2, "TCP 10.96.0.1:80", stays);
    note_asking(&node, 3, "TCP 10.96.0.2:80", gone);
    note_asking(&node, 4, "TCP 192.0.2.1:30080", gone);
    // Connected to the backend itself since.
    note_asking(&node, 5, gone, gone);
    let mut established = socket(6, gone);
    established.backend.protocol = TCP;
    node.note_socket(established, address("TCP 10.96.0.1:80").frontend_key(), true);
    departures.send(told(vec![departed_tcp(gone)]), Bounded::default());
    until(|| node.ended() == [1, 4].into()).await;
    assert_eq!(metrics.udp_failures.at([]).get(), 0);
}

#[tokio::test]
async fn a_connection_that_is_answered_between_two_looks_stays() {
    let node = Node::new();
    let (departures, _) = started(&node);
    let gone = "TCP 10.0.0.1:8080";
    let frontend = address("TCP 10.96.0.1:80").frontend_key();
    note_asking(&node, 1, "TCP 10.96.0.1:80", gone);
    note_asking(&node, 2, "TCP 10.96.0.1:80", gone);
    departures.send(told(vec![departed_tcp(gone)]), Bounded::default());
    until(|| node.looked_for_opening() > 0).await;
    let mut answered = socket(1, gone);
    answered.backend.protocol = TCP;
    node.note_socket(answered, frontend, true);
    until(|| node.ended() == [2].into()).await;
}

#[tokio::test]
async fn network_namespaces_are_looked_into_only_for_sockets_that_were_sent_to_the_departed_backend() {
    let node = Node::new();
    let (departures, metrics) = started(&node);
    let gone = "TCP 10.0.0.1:8080";
    note_asking(&node, 1, "TCP 10.96.0.1:80", "TCP 10.0.0.2:8080");
    note_asking(&node, 2, "TCP 10.96.0.2:80", gone);
    let (key, value) = flow(3, 8, "UDP 10.0.0.3:5353");
    node.note_flow(key, value);
    // Flows of UDP end after connections of TCP.
    let both = vec![departed_tcp(gone), departed(3, "UDP 10.0.0.3:5353", 8)];
    departures.send(told(both), Bounded::default());
    until(|| metrics.udp_flows_ended.at([]).get() > 0).await;
    assert_eq!(node.looked_for_opening(), 0);
}
