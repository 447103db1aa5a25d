//! A client reaches one backend twice from one port: by an address that is translated at its socket, and by one that packet
//! programs translate. For a client of another node that is the node port of the backend's node; for one of the node itself, any
//! frontend after translation at sockets was switched off.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
};

use lb_abi::{SourceKey, TCP, UDP, backend_flags};
use lb_loader::{Datapath, Options};

use super::{
    MODES,
    around::again,
    network::{FAMILIES, Network},
    packets::{NEVER, announce, attach, counted, expose, open, serve, ways},
};
use crate::support::{Node, isolated};

/// How often each of the two asks, in turn.
const ROUNDS: usize = 3;

/// The client's node: only its sockets are translated, and of node ports it knows nothing.
fn elsewhere(node: &Node) -> Datapath {
    let folder = node.options.bpffs.join("elsewhere");
    fs::create_dir(&folder).expect("a folder for the maps of the client's node");
    let options = Options::new(folder, node.options.cgroup.clone());
    let mut datapath = Datapath::open(&options).expect("the datapath opens");
    datapath.attach().expect("attached to the cgroup");
    datapath
}

/// A Node has this address.
fn join(datapath: &Datapath, address: IpAddr) {
    let length = if address.is_ipv4() { 32 } else { 128 };
    let range = SourceKey::range(SourceKey::CLUSTER, address.into(), length);
    datapath.maps().sources.put(&range, &1).expect("the range is put");
}

#[test]
fn one_port_reaches_a_backend_by_its_socket_and_by_a_node_port() {
    isolated(|node| {
        let network = Network::new();
        let elsewhere = elsewhere(node);
        let mut ports = 40_500..;
        for mode in MODES {
            let mut datapath = open(node, mode);
            attach(&mut datapath);
            for family in FAMILIES {
                announce(&datapath, family);
                join(&datapath, family.client);
                let backend = serve(&network.pod, family.pod);
                let [node_port, at_socket] = ways(family);
                for (protocol, socket_first) in [(TCP, true), (TCP, false), (UDP, true), (UDP, false)] {
                    let behind = Some((backend, backend_flags::LOCAL));
                    for at in [&datapath, &elsewhere] {
                        expose(at, family, protocol, 1, behind);
                    }
                    let port = ports.next().expect("a port");
                    let from = SocketAddr::new(family.client, port);
                    let seen = network.client.run(move || -> io::Result<Vec<_>> {
                        let order = if socket_first {
                            [at_socket, node_port]
                        } else {
                            [node_port, at_socket]
                        };
                        let [first, second] = order.map(|to| again(from, protocol, to));
                        let mut clients = [first?, second?];
                        let mut seen = Vec::new();
                        for _ in 0..ROUNDS {
                            for client in &mut clients {
                                seen.push(client.ask()?);
                            }
                        }
                        Ok(seen)
                    });
                    let which = format!("{mode:?}, protocol {protocol}, socket first {socket_first}");
                    let mut seen = seen.unwrap_or_else(|error| panic!("{which}, {family:?}: {error}"));
                    if !socket_first {
                        seen.chunks_mut(2).for_each(<[_]>::reverse);
                    }
                    let by_node = seen[1];
                    assert_eq!(
                        by_node.1.ip(),
                        family.node,
                        "{which}: the node is the client's place"
                    );
                    assert_eq!(seen, [(backend, from), by_node].repeat(ROUNDS), "{which}");
                    assert_eq!(by_node.0, backend, "{which}");
                }
            }
            counted(&datapath, &NEVER);
        }
    });
}

#[test]
fn a_client_of_the_node_does_not_get_the_tuple_of_a_socket_that_is_connected_to_the_backend() {
    isolated(|node| {
        let network = Network::new();
        Network::routes_all_to_the_client();
        let mut ports = 40_700..;
        for mode in MODES {
            // Nothing is attached to sockets.
            let mut datapath = open(node, mode);
            attach(&mut datapath);
            for family in FAMILIES {
                announce(&datapath, family);
                let here = serve(&network.pod, family.pod);
                let there = serve(&network.remote, family.remote);
                let [_, vip] = ways(family);
                for (protocol, (backend, flags)) in [TCP, UDP].into_iter().flat_map(|protocol| {
                    [(here, backend_flags::LOCAL), (there, 0)].map(|backend| (protocol, backend))
                }) {
                    expose(&datapath, family, protocol, 1, Some((backend, flags)));
                    let from = SocketAddr::new(family.node, ports.next().expect("a port"));
                    let which = format!("{mode:?}, protocol {protocol}, {from} to {backend}");
                    // Connected as by a socket program: to the backend itself.
                    let mut clients = [backend, vip].map(|to| {
                        again(from, protocol, to).unwrap_or_else(|error| panic!("{which}: {to}: {error}"))
                    });
                    for _ in 0..ROUNDS {
                        let [at_socket, by_packets] = clients
                            .each_mut()
                            .map(|client| client.ask().unwrap_or_else(|error| panic!("{which}: {error}")));
                        assert_eq!(at_socket, (backend, from), "{which}");
                        assert_eq!(
                            (by_packets.0, by_packets.1.ip()),
                            (backend, family.node),
                            "{which}: the address stays"
                        );
                        assert_ne!(by_packets.1.port(), from.port(), "{which}: the port does not");
                    }
                }
            }
            counted(&datapath, &NEVER);
        }
    });
}
