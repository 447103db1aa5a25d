//! One mutant keeps flows to existing backends, and ends the others like the production agent. The other also ends those of TCP
//! whose backend is gone.

use lb_abi::{Backend, BackendId, Flow, Port, TCP, Tuple, UDP};
use mutants::{connections_cut::connections_cut, flows_kept::flows_kept};
use reference_agent::{
    datapath::Datapath,
    maps::LbMaps as _,
    testing::{node::Node, objects::address},
    udp::Connections as _,
};

const THERE: BackendId = 7;
const GONE: BackendId = 8;

fn tuple(protocol: u8, source_port: u16, to: &str) -> Tuple {
    let at = address(to);
    Tuple {
        source: address("UDP 10.0.9.9:1").address.into(),
        destination: at.address.into(),
        source_port: Port::new(source_port),
        destination_port: Port::new(at.port),
        protocol,
        pad: [0; 3],
    }
}

fn note(node: &Node, protocol: u8, backend: BackendId) {
    let source = 4000 + u16::try_from(backend).expect("a small number");
    let flow = Flow {
        to: tuple(protocol, source, "UDP 10.0.0.1:5353"),
        seen: 0,
        last_seen: 0,
        service: 3,
        backend,
        flags: 0,
        pad: 0,
        claim: 0,
    };
    node.note_flow(tuple(protocol, source, "UDP 10.96.0.1:53"), flow);
}

/// How many flows end of those that the agent selects, by protocol: all of UDP and none of TCP. One of each is to an existing backend
/// and one to a deleted backend.
fn ended<D: Datapath>(of: impl Fn(&Node) -> D, protocol: u8) -> usize {
    let node = Node::new();
    let at = address("UDP 10.0.0.1:5353");
    let backend = Backend {
        address: at.address.into(),
        port: Port::new(at.port),
        protocol,
        flags: 0,
    };
    let datapath = of(&node);
    datapath
        .maps()
        .put_backend(THERE, backend)
        .expect("the backend is put");
    note(&node, protocol, THERE);
    note(&node, protocol, GONE);
    let ended = datapath
        .connections()
        .expect("there are connections")
        .end_flows(&mut |key, _| key.protocol == UDP);
    ended.expect("flows are looked at")
}

#[test]
fn flows_to_backends_that_are_there_are_kept() {
    let all = |protocol| {
        let kept = ended(|node| flows_kept(node.open()), protocol);
        let cut = ended(|node| connections_cut(node.open()), protocol);
        [ended(Node::open, protocol), kept, cut]
    };
    assert_eq!(all(UDP), [2, 1, 2]);
    assert_eq!(all(TCP), [0, 0, 1]);
}
