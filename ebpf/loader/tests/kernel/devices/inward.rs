//! What the node sends to itself, packet by packet: by a node port at its own address, by an address that Services alone have, to
//! pods and to its own servers. And datagrams for its own address that look like a node port's and are answers.

use std::{
    fs,
    net::{IpAddr, SocketAddr, UdpSocket},
};

use lb_abi::{TCP, UDP, backend_flags};
use lb_loader::Datapath;
use testing::patience::LIMIT;

use super::{
    MODES,
    network::{FAMILIES, Network},
    packets::{Client, NEVER, NODE_PORT, announce, attach, counted, expose, open, serve, serve_here, ways},
};
use crate::support::isolated;

#[test]
fn the_node_reaches_every_backend_by_its_own_node_ports_and_by_others_addresses() {
    isolated(|node| {
        let network = Network::new();
        Network::routes_all_to_the_client();
        // A strict one: answers of a Service's address come from where no way leads to it.
        fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "1").expect("written");
        for mode in MODES {
            let mut datapath = open(node, mode);
            attach(&mut datapath);
            for family in FAMILIES {
                announce(&datapath, family);
                let backends = [
                    (serve(&network.pod, family.pod), backend_flags::LOCAL),
                    (serve(&network.remote, family.remote), 0),
                    (serve_here(family.node), backend_flags::LOCAL),
                ];
                for (protocol, (backend, flags)) in [TCP, UDP]
                    .into_iter()
                    .flat_map(|protocol| backends.map(|of| (protocol, of)))
                {
                    expose(&datapath, family, protocol, 1, Some((backend, flags)));
                    for way in ways(family) {
                        let asked = Client::connect(protocol, way).and_then(|mut client| {
                            client.ask()?;
                            client.ask()
                        });
                        match asked {
                            Ok((identity, _)) if identity == backend => {}
                            other => panic!(
                                "{mode:?}, protocol {protocol}, {way} to {backend}: {other:?}; {:?}",
                                datapath.maps().counters()
                            ),
                        }
                    }
                }
            }
            counted(&datapath, &NEVER);
            detach(&mut datapath);
        }
    });
}

#[test]
fn an_answer_to_a_node_ports_number_is_no_datagram_to_the_node_port() {
    isolated(|node| {
        let network = Network::new();
        // Of the node's, from before the node port.
        let sockets = FAMILIES.map(|family| limited((family.node, NODE_PORT)));
        for mode in MODES {
            // With the programs at the cgroup, which see where a server sends its answer.
            let mut datapath = super::start(node, mode);
            for (family, own) in FAMILIES.into_iter().zip(&sockets) {
                announce(&datapath, family);
                let pods = serve(&network.pod, family.pod);
                expose(&datapath, family, UDP, 1, None);
                attach(&mut datapath);
                own.send_to(b"who", pods).expect("sent");
                let mut buffer = [0; 64];
                match own.recv_from(&mut buffer) {
                    Ok((_, from)) if from == pods => {}
                    other => panic!("{mode:?}, {pods}: {other:?}"),
                }
            }
            counted(&datapath, &NEVER);
            detach(&mut datapath);
        }
    });
}

#[test]
fn whom_a_socket_sends_to_answers_that_socket_even_if_taken_for_a_client_before() {
    isolated(|node| {
        let network = Network::new();
        let sockets = FAMILIES.map(|family| limited((family.node, NODE_PORT)));
        for mode in MODES {
            let mut datapath = super::start(node, mode);
            for (family, own) in FAMILIES.into_iter().zip(&sockets) {
                announce(&datapath, family);
                let pod = serve(&network.pod, family.pod);
                expose(&datapath, family, UDP, 1, Some((pod, backend_flags::LOCAL)));
                attach(&mut datapath);
                let other = network.client.run(move || limited((family.client, 0)));
                let node_port = SocketAddr::new(family.node, NODE_PORT);
                // As an answer that was on its way when the port became a node port: the pod gets it, and says so.
                let mut buffer = [0; 64];
                other.send_to(b"late", node_port).expect("sent");
                let (length, from) = other.recv_from(&mut buffer).expect("the pod's answer");
                assert_eq!(from, node_port, "{mode:?}");
                assert!(
                    buffer[..length].starts_with(pod.to_string().as_bytes()),
                    "{mode:?}"
                );

                let there = other.local_addr().expect("its address");
                own.send_to(b"again", there).expect("sent");
                assert_eq!(other.recv_from(&mut buffer).expect("it arrives").1, node_port);
                other.send_to(b"answer", node_port).expect("sent");
                let (length, from) = own
                    .recv_from(&mut buffer)
                    .unwrap_or_else(|error| panic!("{mode:?}, {there}: {error}"));
                assert_eq!((&buffer[..length], from), (&b"answer"[..], there), "{mode:?}");
            }
            counted(&datapath, &NEVER);
            detach(&mut datapath);
        }
    });
}

/// A socket that waits for an answer no longer than tests do.
fn limited(address: (IpAddr, u16)) -> UdpSocket {
    let socket = UdpSocket::bind(address).expect("a socket");
    socket.set_read_timeout(Some(LIMIT)).expect("a limit");
    socket
}

#[test]
fn a_pod_asks_a_node_port_of_its_own_node_by_datagrams() {
    isolated(|node| {
        let network = Network::new();
        for mode in MODES {
            let mut datapath = super::start(node, mode);
            attach(&mut datapath);
            for family in FAMILIES {
                announce(&datapath, family);
                let remote = serve(&network.remote, family.remote);
                expose(&datapath, family, UDP, 1, Some((remote, 0)));
                let asked = network.pod.run(move || asked_unconnected(family.node));
                assert_eq!(asked, Ok(SocketAddr::new(family.node, NODE_PORT)), "{mode:?}");
            }
            counted(&datapath, &NEVER);
            detach(&mut datapath);
        }
    });
}

/// From whom a socket that is not connected hears, which asks the node port.
fn asked_unconnected(node: IpAddr) -> Result<SocketAddr, String> {
    let said = |error: std::io::Error| error.to_string();
    let any = if node.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).map_err(said)?;
    socket.set_read_timeout(Some(LIMIT)).map_err(said)?;
    socket.send_to(b"who", (node, NODE_PORT)).map_err(said)?;
    let (_, from) = socket.recv_from(&mut [0; 64]).map_err(said)?;
    Ok(from)
}

fn detach(datapath: &mut Datapath) {
    for device in [
        super::network::UPLINK,
        super::network::FAR,
        super::network::POD,
        "lo",
    ] {
        datapath.detach_device(device).expect("detached");
    }
}
