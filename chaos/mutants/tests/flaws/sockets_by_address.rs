//! For the mutant a socket has dialled every UDP Service, and for the production agent its own.

use std::collections::BTreeSet;

use lb_abi::{Backend, Frontend, FrontendKey, Port, SocketRevnatKey, UDP};
use mutants::sockets_by_address::sockets_by_address;
use reference_agent::{
    datapath::Datapath,
    maps::LbMaps as _,
    testing::{node::Node, objects::address},
    udp::Connections as _,
};

fn key(of: &str) -> FrontendKey {
    let at = address(of);
    FrontendKey {
        address: at.address.into(),
        port: Port::new(at.port),
        protocol: UDP,
        pad: 0,
    }
}

/// The frontends that a socket of one Service has dialled, of two.
fn dialled<D: Datapath>(of: impl Fn(&Node) -> D) -> BTreeSet<FrontendKey> {
    let node = Node::new();
    let datapath = of(&node);
    for frontend in ["UDP 10.96.0.1:53", "UDP 10.96.0.2:53"] {
        let served = Frontend {
            internal: 1,
            external: 0,
            flags: 0,
            affinity_seconds: 0,
        };
        let put = datapath.maps().put_frontend(key(frontend), served);
        put.expect("the frontend is put");
    }
    let at = address("UDP 10.0.0.1:5353");
    let backend = Backend {
        address: at.address.into(),
        port: Port::new(at.port),
        protocol: UDP,
        flags: 0,
    };
    node.note_socket(
        SocketRevnatKey {
            cookie: 7,
            backend,
            pad: 0,
        },
        key("UDP 10.96.0.1:53"),
        true,
    );
    let mut seen = BTreeSet::new();
    let connections = datapath.connections().expect("there are connections");
    connections
        .sockets(&mut |_, remembered| _ = seen.insert(remembered.frontend))
        .expect("sockets are shown");
    seen
}

#[test]
fn a_socket_has_dialled_whatever_is_there() {
    let own = BTreeSet::from([key("UDP 10.96.0.1:53")]);
    assert_eq!(dialled(Node::open), own);
    let all = BTreeSet::from([key("UDP 10.96.0.1:53"), key("UDP 10.96.0.2:53")]);
    assert_eq!(dialled(|node| sockets_by_address(node.open())), all);
}
