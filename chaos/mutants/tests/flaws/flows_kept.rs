//! The mutant keeps flows to existing backends, and ends the others like the production agent.

use lb_abi::{Backend, BackendId, Flow, Port, Tuple, UDP};
use mutants::flows_kept::flows_kept;
use reference_agent::{
    datapath::Datapath,
    maps::LbMaps as _,
    testing::{node::Node, objects::address},
    udp::Connections as _,
};

const THERE: BackendId = 7;
const GONE: BackendId = 8;

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

fn note(node: &Node, backend: BackendId) {
    let source = 4000 + u16::try_from(backend).expect("a small number");
    let flow = Flow {
        to: tuple(source, "UDP 10.0.0.1:5353"),
        seen: 0,
        last_seen: 0,
        service: 3,
        backend,
        flags: 0,
        pad: 0,
        claim: 0,
    };
    node.note_flow(tuple(source, "UDP 10.96.0.1:53"), flow);
}

/// How many flows end, of one to an existing backend and one to a deleted backend.
fn ended<D: Datapath>(of: impl Fn(&Node) -> D) -> usize {
    let node = Node::new();
    let at = address("UDP 10.0.0.1:5353");
    let backend = Backend {
        address: at.address.into(),
        port: Port::new(at.port),
        protocol: UDP,
        flags: 0,
    };
    let datapath = of(&node);
    datapath
        .maps()
        .put_backend(THERE, backend)
        .expect("the backend is put");
    note(&node, THERE);
    note(&node, GONE);
    let ended = datapath
        .connections()
        .expect("there are connections")
        .end_flows(&mut |_, _| true);
    ended.expect("flows are looked at")
}

#[test]
fn flows_to_backends_that_are_there_are_kept() {
    assert_eq!(ended(Node::open), 2);
    assert_eq!(ended(|node| flows_kept(node.open())), 1);
}
