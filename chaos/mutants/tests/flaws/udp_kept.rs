//! Which UDP state each mutant ends, of a flow, a choice and a connected socket whose backend has left, and of a flow and a
//! choice whose backend stays.

use lb_abi::{Backend, Chosen, ChosenKey, Flow, FrontendKey, Port, SocketRevnatKey, TCP, Tuple, UDP};
use mutants::{
    flows_flushed::flows_flushed,
    udp_kept::{Kept, udp_kept},
};
use reference_agent::{
    datapath::Datapath,
    testing::{node::Node, objects::address},
    udp::Connections as _,
};

const LEFT: u32 = 8;
const STAYS: u32 = 9;
const FRONTEND: &str = "UDP 10.96.0.1:53";

fn frontend() -> FrontendKey {
    address(FRONTEND).frontend_key()
}

fn backend(number: u32) -> Backend {
    let at = address(&format!("UDP 10.0.0.{number}:5353"));
    Backend {
        address: at.address.into(),
        port: Port::new(at.port),
        protocol: UDP,
        flags: 0,
    }
}

fn tuple(source_port: u16, to: &str) -> Tuple {
    let at = address(to);
    Tuple {
        source: address("UDP 10.0.9.9:1").address.into(),
        destination: at.address.into(),
        source_port: Port::new(source_port),
        destination_port: Port::new(at.port),
        protocol: UDP,
        pad: [0; 3],
    }
}

/// A flow and a choice of each backend, and of the one that has left a socket that is connected to it, and a TCP one that waits
/// for its answer.
fn note(node: &Node) {
    for number in [LEFT, STAYS] {
        let source = 4000 + u16::try_from(number).expect("a small number");
        let flow = Flow {
            to: tuple(source, &format!("UDP 10.0.0.{number}:5353")),
            seen: 0,
            last_seen: 0,
            service: 3,
            backend: number,
            flags: 0,
            pad: 0,
            claim: 0,
        };
        node.note_flow(tuple(source, FRONTEND), flow);
        let key = ChosenKey {
            cookie: u64::from(number),
            frontend: frontend(),
            pad: 0,
        };
        let chosen = Chosen {
            service: 3,
            backend: number,
        };
        node.note_choice(key, chosen);
    }
    let key = SocketRevnatKey {
        cookie: 7,
        backend: backend(LEFT),
        pad: 0,
    };
    node.note_socket(key, frontend(), true);
    let mut opening = key;
    (opening.cookie, opening.backend.protocol) = (8, TCP);
    node.note_socket(opening, frontend(), false);
}

/// Flows and choices that end, and sockets that are shown, when the first backend leaves.
fn ended<D: Datapath>(of: impl Fn(&Node) -> D) -> (usize, usize, usize, usize) {
    let node = Node::new();
    let datapath = of(&node);
    note(&node);
    let connections = datapath.connections().expect("there are connections");
    let flows = connections.end_flows(&mut |_, flow| flow.backend == LEFT);
    let ends = connections.end_choices(&mut |_, chosen| chosen.backend == LEFT);
    ends.expect("choices are looked at");
    let mut shown = 0;
    let sockets = connections.sockets(&mut |_, _| shown += 1);
    sockets.expect("sockets are shown");
    let unanswered = connections.end_opening(&mut |_, _| true);
    (
        flows.expect("flows are looked at"),
        2 - node.choices().len(),
        shown,
        unanswered.expect("connections are looked at"),
    )
}

#[test]
fn each_keeps_what_it_keeps_and_ends_the_rest() {
    assert_eq!(ended(Node::open), (1, 1, 2, 1));
    let of = |kept| ended(|node| udp_kept(node.open(), kept));
    assert_eq!(of(Kept::All), (0, 0, 0, 1));
    assert_eq!(of(Kept::Sockets), (1, 1, 0, 1));
    assert_eq!(of(Kept::Opening), (1, 1, 2, 0));
    assert_eq!(of(Kept::Choices), (1, 0, 2, 1));
    assert_eq!(ended(|node| flows_flushed(node.open())), (2, 2, 2, 1));
}
