//! What sockets see.

use std::{
    collections::BTreeSet,
    fs,
    net::{Ipv4Addr, SocketAddrV4, TcpStream},
    path::Path,
    time::{Duration, Instant},
};

use lb_abi::Counter;
use lb_loader::Datapath;

use crate::support::{
    Node, Protocol, TcpServer, UdpServer, dial, frontend, isolated, overwrite_meta, receive, refused,
    udp_client,
};

/// Within this a refusal has come from the hook: the first timer that could be behind it, the retransmission of a
/// TCP SYN, is of a second.
const AT_ONCE: Duration = Duration::from_secs(1);

#[track_caller]
fn counted(datapath: &Datapath, counter: Counter, expected: u64) {
    let counts = datapath.maps().counters().expect("the counters are read");
    assert_eq!(counts.get(counter), expected, "{counter:?} in {counts:?}");
}

#[test]
fn tcp_to_a_cluster_ip_reaches_the_backend_and_the_peer_is_the_frontend() {
    isolated(|node| {
        let (datapath, server) = (node.start(), TcpServer::start(1));
        let cluster_ip = node.service(&datapath, Protocol::Tcp, 80, &[server.address]);
        let (identity, peer) = dial(cluster_ip).expect("a connection");
        assert_eq!(identity, server.address);
        assert_eq!(peer, cluster_ip, "getpeername shows the frontend");
        counted(&datapath, Counter::ConnectTranslated, 1);
        counted(&datapath, Counter::GetpeernameReversed, 1);
        counted(&datapath, Counter::SocketHole, 0);
        counted(&datapath, Counter::ReverseFull, 0);
    });
}

#[test]
fn unconnected_udp_is_answered_from_the_frontend() {
    isolated(|node| {
        let (datapath, server) = (node.start(), UdpServer::start(1));
        let cluster_ip = node.service(&datapath, Protocol::Udp, 53, &[server.address]);
        let client = udp_client();
        client.send_to(b"who", cluster_ip).expect("sent");
        let (identity, source) = receive(&client).expect("an answer");
        assert_eq!(identity, server.address);
        assert_eq!(source, cluster_ip, "address and port of the frontend");
        counted(&datapath, Counter::SendmsgTranslated, 1);
        counted(&datapath, Counter::RecvmsgReversed, 1);
    });
}

#[test]
fn one_udp_socket_with_two_services_sees_each_answer_from_its_frontend() {
    isolated(|node| {
        let datapath = node.start();
        let (one, other) = (UdpServer::start(1), UdpServer::start(2));
        let first = node.service(&datapath, Protocol::Udp, 53, &[one.address]);
        let second = node.service(&datapath, Protocol::Udp, 123, &[other.address]);
        let client = udp_client();
        for (cluster_ip, server) in [(first, &one), (second, &other), (first, &one)] {
            client.send_to(b"who", cluster_ip).expect("sent");
            assert_eq!(receive(&client).expect("an answer"), (server.address, cluster_ip));
        }
    });
}

#[test]
fn connected_udp_talks_to_the_frontend_throughout() {
    isolated(|node| {
        let (datapath, server) = (node.start(), UdpServer::start(1));
        let cluster_ip = node.service(&datapath, Protocol::Udp, 53, &[server.address]);
        let client = udp_client();
        client.connect(cluster_ip).expect("connected");
        assert_eq!(
            client.peer_addr().expect("a peer"),
            cluster_ip.into(),
            "getpeername shows the frontend"
        );
        client.send(b"who").expect("sent");
        let (identity, source) = receive(&client).expect("an answer");
        assert_eq!(identity, server.address);
        assert_eq!(source, cluster_ip, "recvfrom shows the frontend");
        counted(&datapath, Counter::ConnectTranslated, 1);
        counted(&datapath, Counter::SendmsgTranslated, 0);
    });
}

#[test]
fn every_backend_is_used_and_no_other() {
    isolated(|node| {
        let datapath = node.start();
        let servers: Vec<TcpServer> = (1..=3).map(TcpServer::start).collect();
        let addresses: BTreeSet<SocketAddrV4> = servers.iter().map(|server| server.address).collect();
        let backends: Vec<SocketAddrV4> = addresses.iter().copied().collect();
        let cluster_ip = node.service(&datapath, Protocol::Tcp, 80, &backends);
        // That one of three is missed in 100 uniform draws has a probability below 1e-17.
        let seen: BTreeSet<SocketAddrV4> = (0..100)
            .map(|_| dial(cluster_ip).expect("a connection").0)
            .collect();
        assert_eq!(seen, addresses);
    });
}

#[test]
fn a_service_without_backends_refuses_tcp_and_udp_at_once() {
    isolated(|node| {
        let datapath = node.start();
        let tcp = node.service(&datapath, Protocol::Tcp, 80, &[]);
        let udp = node.service(&datapath, Protocol::Udp, 53, &[]);
        let begun = Instant::now();
        refused(TcpStream::connect(tcp));
        refused(udp_client().connect(udp));
        refused(udp_client().send_to(b"who", udp));
        assert!(begun.elapsed() < AT_ONCE, "refused after {:?}", begun.elapsed());
        counted(&datapath, Counter::ConnectRefused, 2);
        counted(&datapath, Counter::SendmsgRefused, 1);
        counted(&datapath, Counter::SocketHole, 0);
    });
}

#[test]
fn a_frontend_whose_service_is_missing_refuses_and_is_counted_as_a_hole() {
    isolated(|node| {
        let datapath = node.start();
        let cluster_ip = SocketAddrV4::new(Node::CLUSTER_IP, 80);
        frontend(&datapath, Protocol::Tcp, cluster_ip, 9);
        refused(TcpStream::connect(cluster_ip));
        counted(&datapath, Counter::SocketHole, 1);
        counted(&datapath, Counter::ConnectRefused, 0);
    });
}

#[test]
fn a_destination_that_is_no_frontend_is_left_alone() {
    isolated(|node| {
        let datapath = node.start();
        let (tcp, udp) = (TcpServer::start(1), UdpServer::start(1));
        // Services at the same ports of the same addresses, but of the other protocol.
        for (protocol, address) in [(Protocol::Udp, tcp.address), (Protocol::Tcp, udp.address)] {
            frontend(&datapath, protocol, address, 9);
        }
        assert_eq!(
            dial(tcp.address).expect("a connection"),
            (tcp.address, tcp.address)
        );
        let client = udp_client();
        client.send_to(b"who", udp.address).expect("sent");
        assert_eq!(receive(&client).expect("an answer"), (udp.address, udp.address));
        counted(&datapath, Counter::ConnectPassed, 1);
        // The client's datagram, and the server's answer.
        counted(&datapath, Counter::SendmsgPassed, 2);
        counted(&datapath, Counter::RecvmsgReversed, 0);
        counted(&datapath, Counter::GetpeernameReversed, 0);
    });
}

#[test]
fn a_port_that_nobody_listens_on_behind_a_service_is_refused_by_its_host_not_by_us() {
    isolated(|node| {
        let datapath = node.start();
        let closed = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 1), 9);
        let cluster_ip = node.service(&datapath, Protocol::Tcp, 80, &[closed]);
        refused(TcpStream::connect(cluster_ip));
        counted(&datapath, Counter::ConnectTranslated, 1);
        counted(&datapath, Counter::ConnectRefused, 0);
    });
}

#[test]
fn replies_are_reversed_per_socket() {
    isolated(|node| {
        let (datapath, server) = (node.start(), UdpServer::start(1));
        let cluster_ip = node.service(&datapath, Protocol::Udp, 53, &[server.address]);
        let (through, directly) = (udp_client(), udp_client());
        through.send_to(b"who", cluster_ip).expect("sent");
        directly.send_to(b"who", server.address).expect("sent");
        assert_eq!(receive(&through).expect("an answer").1, cluster_ip);
        assert_eq!(
            receive(&directly).expect("an answer").1,
            server.address,
            "it never asked for the frontend"
        );
    });
}

#[test]
fn programs_leave_every_socket_alone_while_meta_is_of_another_version() {
    isolated(|node| {
        let (datapath, server) = (node.start(), TcpServer::start(1));
        // A frontend at an address where somebody listens, and backends elsewhere.
        frontend(&datapath, Protocol::Tcp, server.address, 9);
        refused(TcpStream::connect(server.address));
        let meta = lb_abi::Meta {
            abi: lb_abi::ABI_VERSION + 1,
            ..lb_abi::Meta::CURRENT
        };
        overwrite_meta(node, &meta);
        assert_eq!(dial(server.address).expect("a connection").0, server.address);
    });
}

#[test]
fn sockets_of_the_nodes_cgroup_and_below_see_services_and_no_others() {
    isolated(|node| {
        let (datapath, server) = (node.start(), TcpServer::start(1));
        let cluster_ip = node.service(&datapath, Protocol::Tcp, 80, &[server.address]);
        let cgroup = &node.options.cgroup;
        let pod = cgroup.join("pod");
        fs::create_dir(&pod).expect("a cgroup");
        let outside = cgroup.parent().expect("the cgroup is below the mount");
        let dial_from = |cgroup: &Path| {
            fs::write(cgroup.join("cgroup.procs"), "0").expect("to enter the cgroup");
            dial(cluster_ip).map(|(identity, _)| identity)
        };
        assert_eq!(dial_from(&pod).expect("a connection"), server.address);
        let error = dial_from(outside).expect_err("no route leads to the ClusterIP");
        assert_eq!(error.raw_os_error(), Some(libc::ENETUNREACH));
        assert_eq!(dial_from(cgroup).expect("a connection"), server.address);
        fs::remove_dir(&pod).expect("removed");
    });
}
