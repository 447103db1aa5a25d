//! UDP clients whose backend stops serving, or whose frontend passes to another Service: told, or sent to another backend;
//! other clients notice nothing.

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    process::{Child, Command},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use nix::sys::signal::Signal;
use rstest::rstest;
use serde_json::json;
use test_network::prepare;

use crate::{
    agent::{Api, Node, Serving},
    network::{FAMILIES, Family, Namespace, Network, pod},
    objects::{Everything, NODE_PORTS, PORTS, cluster_ips, create_node, external_ips},
    place::place,
    sockets::{LIMIT, UDP, serve},
};

/// From which a client dials again and again.
const PORT: u16 = 40_000;
/// How long it waits without an answer.
const SHORT: Duration = Duration::from_millis(2);
/// Sockets of each kind: that none of them has one of two backends happens in 2⁻¹⁹ of all runs.
const SOCKETS: usize = 20;

/// A connected socket, and who answers it.
struct Client {
    socket: UdpSocket,
    server: IpAddr,
}

impl Client {
    fn new(from: IpAddr, to: SocketAddr) -> Self {
        let socket = UdpSocket::bind((from, 0)).expect("a socket");
        socket.set_read_timeout(Some(LIMIT)).expect("a limit");
        socket.connect(to).expect("connected");
        let server = asked(&socket).expect("served");
        Self { socket, server }
    }
}

/// Who answers a connected socket.
fn asked(socket: &UdpSocket) -> io::Result<IpAddr> {
    socket.send(b"who?")?;
    let mut buffer = [0; 128];
    let length = socket.recv(&mut buffer)?;
    let said = String::from_utf8_lossy(&buffer[..length]);
    let server = said.split(' ').next().and_then(|server| server.parse().ok());
    server.ok_or_else(|| io::Error::other(format!("not an answer: {said:?}")))
}

/// A pod, with a process in it as pods have.
struct Pod {
    namespace: Namespace,
    process: Child,
}

impl Pod {
    fn new(number: usize) -> Self {
        let namespace = pod(number);
        let process = namespace.run(|| Command::new("sleep").arg("infinity").spawn().expect("a process"));
        Self { namespace, process }
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        // It has no other end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Two Services: `x` has a backend that is to leave and one that stays, `y` the former alone.
struct World {
    api: Api,
    address: SocketAddr,
    pods: [Pod; 2],
    network: Network,
}

const LEAVING: bool = true;
const STAYING: bool = false;

impl World {
    fn new() -> Self {
        // The uplink comes last, so that packets of pods are served while its programs are being loaded.
        prepare().expect("settings of the node");
        let pods = [Pod::new(0), Pod::new(1)];
        let network = Network::new();
        for family in FAMILIES {
            pods[0].namespace.run(move || serve(family.pods[0]));
            network.outside.run(move || serve(family.remote));
        }
        let api = Api::new();
        let Serving { address, .. } = api.serve("127.0.0.1:0".parse().expect("an address"), &["127.0.0.1"]);
        let world = Self {
            api,
            address,
            pods,
            network,
        };
        world.api.with(address, async |client| create_node(&client).await);
        world.write("x", 1, &[LEAVING, STAYING]);
        world.write("y", 2, &[LEAVING]);
        world
    }

    fn write(&self, name: &'static str, number: u8, backends: &[bool]) {
        let of = |leaving: &bool| {
            if *leaving {
                (FAMILIES.map(|family| family.pods[0]), true)
            } else {
                (FAMILIES.map(|family| family.remote), false)
            }
        };
        let service = Everything {
            name,
            number,
            spec: json!({}),
            backends: backends.iter().map(of).collect(),
        };
        self.api
            .with(self.address, async |client| service.create(&client).await);
    }

    /// The external IPs of `x` are those of `y` from now on.
    fn hand_over(&self) {
        let of = |name, number, ips: &[IpAddr], backends| Everything {
            name,
            number,
            spec: json!({"externalIPs": ips}),
            backends,
        };
        let leaving = (FAMILIES.map(|family| family.pods[0]), true);
        let staying = (FAMILIES.map(|family| family.remote), false);
        let services = [
            // Not its yet: `x`, which has them, too, comes first.
            of("y", 2, &external_ips(1), vec![leaving]),
            of("x", 1, &[], vec![leaving, staying]),
        ];
        self.api.with(self.address, async |client| {
            for service in &services {
                service.create(&client).await;
            }
        });
    }

    /// For the other family: both serve again.
    fn restore(&self, node: &Node, index: usize) {
        self.write("x", 1, &[LEAVING, STAYING]);
        let (vip, family) = (at(1, index), FAMILIES[index]);
        let mut servers = [family.pods[0], family.remote];
        servers.sort_unstable();
        let servers = servers.map(|server| SocketAddr::new(server, UDP).to_string());
        node.until_dumped(&[&format!("UDP {vip} -> {}", servers.join(" "))]);
    }
}

/// The cluster IP of a Service.
fn at(number: u8, index: usize) -> SocketAddr {
    SocketAddr::new(cluster_ips(number)[index], PORTS[1])
}

fn clients(from: IpAddr, to: SocketAddr) -> Vec<Client> {
    (0..SOCKETS).map(|_| Client::new(from, to)).collect()
}

#[track_caller]
fn has_both(clients: &[Client], family: &Family) {
    for server in [family.pods[0], family.remote] {
        assert!(
            clients.iter().any(|client| client.server == server),
            "nobody has {server}"
        );
    }
}

/// Dials from one port again and again until it is told to stop; what is not served before the first answer is nobody's
/// fault. How often it was served.
fn dials(from: SocketAddr, to: SocketAddr, stop: &AtomicBool) -> Result<u32, String> {
    let dial = |limit| {
        let socket = UdpSocket::bind(from)?;
        socket.set_read_timeout(Some(limit))?;
        socket.connect(to)?;
        asked(&socket)
    };
    let mut served = 0;
    while !stop.load(Ordering::Relaxed) {
        let limit = if served == 0 { SHORT } else { LIMIT };
        match dial(limit) {
            Ok(_) => served += 1,
            Err(_) if served == 0 => {}
            Err(error) => return Err(format!("served {served} times from {from}, and then: {error}")),
        }
    }
    Ok(served)
}

#[test]
fn who_dials_from_one_port_all_through_the_first_start_loses_no_answer() {
    let Some(place) = place() else { return };
    let world = World::new();
    let node = Node::new(&place, true);
    let stop = Arc::new(AtomicBool::new(false));
    let dialling: [_; 2] = std::array::from_fn(|index| {
        let family = FAMILIES[index];
        let (from, to) = (SocketAddr::new(family.pods[1], PORT), at(2, index));
        let stop = Arc::clone(&stop);
        world.pods[1]
            .namespace
            .run(move || thread::spawn(move || dials(from, to, &stop)))
    });
    let agent = node.start(&world.api.kubeconfig(world.address), &[]);
    agent.ready();
    // What is answered now was asked after all of it.
    for (index, family) in FAMILIES.into_iter().enumerate() {
        let client = world.pods[1]
            .namespace
            .run(move || Client::new(family.pods[1], at(2, index)));
        assert_eq!(client.server, family.pods[0]);
    }
    stop.store(true, Ordering::Relaxed);
    for dialled in dialling {
        let served = dialled.join().expect("it does not panic");
        assert!(served.as_ref().is_ok_and(|times| *times > 0), "{served:?}");
    }
}

#[test]
fn connected_sockets_of_a_backend_that_serves_no_more_are_told_and_no_others() {
    let Some(place) = place() else { return };
    let world = World::new();
    let node = Node::new(&place, true);
    let agent = node.start(&world.api.kubeconfig(world.address), &[]);
    agent.ready();
    for (index, family) in FAMILIES.into_iter().enumerate() {
        let (leaving, staying) = (family.pods[0], family.remote);
        // Of the node itself at the cluster IP and the node port, and of a pod.
        let x = at(1, index);
        let mut told = clients(family.node, x);
        told.extend(clients(family.node, SocketAddr::new(family.node, NODE_PORTS[1])));
        told.extend(world.pods[1].namespace.run(move || clients(family.pods[1], x)));
        has_both(&told, &family);
        // Of the other Service, and some that were connected to it since.
        let others = clients(family.node, at(2, index));
        let mut moved = clients(family.node, x);
        moved.retain(|client| client.server == leaving);
        for client in &moved {
            client.socket.connect(at(2, index)).expect("connected elsewhere");
            assert_eq!(asked(&client.socket).expect("served"), leaving);
        }

        // The backend leaves one of the two Services, and goes on answering.
        world.write("x", 1, &[STAYING]);
        for client in &told {
            if client.server == staying {
                assert_eq!(asked(&client.socket).expect("a healthy flow goes on"), staying);
                continue;
            }
            // A receiver is woken, and a sender gets an error.
            node.eventually(|| match asked(&client.socket) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => Ok(()),
                other => Err(format!("{other:?}")),
            });
        }
        for client in others.iter().chain(&moved) {
            assert_eq!(asked(&client.socket).expect("not of that Service"), leaving);
        }
        world.restore(&node, index);
    }
    agent.ready();
}

#[test]
fn flows_of_a_backend_that_serves_no_more_go_to_another_and_no_others() {
    let Some(place) = place() else { return };
    let world = World::new();
    // No program sees the clients' sockets: their packets alone.
    let node = Node::new(&place, false);
    let agent = node.start(&world.api.kubeconfig(world.address), &[]);
    agent.ready();
    for (index, family) in FAMILIES.into_iter().enumerate() {
        let (leaving, staying) = (family.pods[0], family.remote);
        let (x, node_port) = (at(1, index), SocketAddr::new(family.node, NODE_PORTS[1]));
        let mut moving = world
            .network
            .outside
            .run(move || clients(family.client, node_port));
        moving.extend(world.pods[1].namespace.run(move || clients(family.pods[1], x)));
        has_both(&moving, &family);
        let others = world.pods[1]
            .namespace
            .run(move || clients(family.pods[1], at(2, index)));
        world.write("x", 1, &[STAYING]);
        for client in &moving {
            node.eventually(|| match asked(&client.socket) {
                Ok(server) if server == staying => Ok(()),
                other => Err(format!("{other:?}")),
            });
        }
        for client in &others {
            assert_eq!(asked(&client.socket).expect("not of that Service"), leaving);
        }
        world.restore(&node, index);
    }
    agent.ready();
}

/// The pod serves the one Service and the other, the remote backend only the one that had the frontend.
#[rstest]
fn a_frontend_that_passes_to_another_service_takes_its_flows_and_sockets_along(
    #[values(true, false)] at_sockets: bool,
    #[values(true, false)] while_an_agent_runs: bool,
) {
    let Some(place) = place() else { return };
    let world = World::new();
    let node = Node::new(&place, at_sockets);
    let kubeconfig = world.api.kubeconfig(world.address);
    let mut agent = node.start(&kubeconfig, &[]);
    agent.ready();
    let of_family: Vec<_> = FAMILIES
        .into_iter()
        .enumerate()
        .map(|(index, family)| {
            let passing = SocketAddr::new(external_ips(1)[index], PORTS[1]);
            let mut moving = if at_sockets {
                clients(family.node, passing)
            } else {
                world.network.outside.run(move || clients(family.client, passing))
            };
            let pod = &world.pods[1].namespace;
            moving.extend(pod.run(move || clients(family.pods[1], passing)));
            has_both(&moving, &family);
            // Of the same Service, by a frontend that it keeps.
            let others = pod.run(move || clients(family.pods[1], at(1, index)));
            has_both(&others, &family);
            (family, moving, others)
        })
        .collect();
    if while_an_agent_runs {
        world.hand_over();
    } else {
        agent.end(Signal::SIGTERM);
        world.hand_over();
        agent = node.start(&kubeconfig, &[]);
        agent.ready();
    }
    for (family, moving, others) in of_family {
        let serves = family.pods[0];
        for client in &moving {
            if client.server == serves {
                // Its flow is another Service's, and ends: an answer that is on its way in that moment is lost.
                node.eventually(|| match asked(&client.socket) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error.to_string()),
                    answered => {
                        assert_eq!(answered.expect("its backend serves both"), serves);
                        Ok(())
                    }
                });
                continue;
            }
            node.eventually(|| match asked(&client.socket) {
                Ok(server) if server == serves && !at_sockets => Ok(()),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock && at_sockets => Ok(()),
                other => Err(format!("{other:?}")),
            });
        }
        for client in &others {
            assert_eq!(asked(&client.socket).expect("its frontend stays"), client.server);
        }
    }
    agent.ready();
}
