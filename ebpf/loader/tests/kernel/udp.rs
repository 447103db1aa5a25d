//! Connected UDP sockets whose backend is gone are told so; others are left alone.

use std::{
    collections::HashSet,
    fs::File,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, UdpSocket},
    os::fd::{AsFd as _, AsRawFd as _},
    os::unix::fs::MetadataExt as _,
};

use lb_loader::{Terminated, namespaces, terminate_udp};
use test_network::Namespace;

use crate::support::{Protocol, UdpServer, isolated, receive, switch, udp_client};

/// The calling thread's network namespace.
fn here() -> File {
    File::open("/proc/thread-self/ns/net").expect("a network namespace")
}

/// `SO_COOKIE`, as the programs have it.
fn cookie(socket: &UdpSocket) -> u64 {
    let mut cookie = 0_u64;
    let mut length = libc::socklen_t::try_from(size_of_val(&cookie)).expect("8");
    // SAFETY: a descriptor, and room for `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    cookie
}

fn cookies<'a>(sockets: impl IntoIterator<Item = &'a UdpSocket>) -> HashSet<u64> {
    sockets.into_iter().map(cookie).collect()
}

fn connected(from: IpAddr, to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((from, 0)).expect("a socket");
    socket.connect(to).expect("connected");
    socket
}

/// The socket is connected, and this backend answers as the Service.
#[track_caller]
fn is_served(socket: &UdpSocket, vip: SocketAddrV4, backend: SocketAddrV4) {
    socket.connect(vip).expect("connected");
    socket.send(b"who").expect("sent");
    assert_eq!(receive(socket).expect("an answer"), (backend, vip));
}

/// Whoever waits for an answer is told, and nothing more is sent to the backend.
#[track_caller]
fn is_ended(socket: &UdpSocket) {
    let number = |result: io::Result<usize>| result.expect_err("its backend is gone").raw_os_error();
    assert_eq!(number(socket.recv(&mut [0; 8])), Some(libc::ECONNABORTED));
    assert_eq!(number(socket.send(b"who")), Some(libc::EDESTADDRREQ));
}

const ENDED: Terminated = Terminated {
    ended: 1,
    moved: 0,
    more: false,
};

#[test]
fn a_socket_whose_backend_leaves_is_told_and_comes_to_another_in_a_pods_namespace() {
    isolated(|node| {
        let datapath = node.start();
        // A pod: its own network namespace, below the node's cgroup.
        let pod = Namespace::create().expect("a network namespace");
        let [first, second] = pod.run(|| [1, 2].map(|last| UdpServer::start(last).address));
        let vip = node.service(&datapath, Protocol::Udp, 53, &[first]);
        let client = pod.run(udp_client);
        is_served(&client, vip, first);
        switch(&datapath, Protocol::Udp, 53, 2, &[second]);
        // As an agent finds out whom to tell: by what the programs remember.
        let mut sockets = HashSet::new();
        let removed = datapath.maps().socket_backend.retain(|cookie, backend| {
            let leaves = *backend
                == lb_abi::Backend {
                    address: lb_abi::Address::v4(first.ip().octets()),
                    port: lb_abi::Port::new(first.port()),
                    protocol: lb_abi::UDP,
                    flags: 0,
                };
            if leaves {
                sockets.insert(*cookie);
            }
            !leaves
        });
        assert_eq!(removed.expect("SOCKET_BACKEND is read"), 1);
        assert_eq!(sockets, HashSet::from([cookie(&client)]));
        // The node's namespace has no such socket.
        assert_eq!(
            terminate_udp(here().as_fd(), first.into(), &sockets).expect("listed"),
            Terminated::default()
        );
        let done = terminate_udp(pod.file().as_fd(), first.into(), &sockets).expect("ended");
        assert_eq!(done, ENDED);
        is_ended(&client);
        is_served(&client, vip, second);
    });
}

#[test]
fn only_those_that_are_named_and_still_connected_to_the_backend_are_ended() {
    isolated(|_| {
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let [backend, other] = [1, 2].map(|last| SocketAddr::from(UdpServer::start(last).address));
        let (ends, stays) = (connected(localhost, backend), connected(localhost, backend));
        let (elsewhere, never) = (connected(localhost, backend), udp_client());
        elsewhere.connect(other).expect("connected to another");
        never.send_to(b"who", backend).expect("sent");
        let named = cookies([&ends, &elsewhere, &never]);
        let done = terminate_udp(here().as_fd(), backend, &named).expect("ended");
        assert_eq!(done, ENDED);
        is_ended(&ends);
        stays.send(b"who").expect("it was not named");
        elsewhere.send(b"who").expect("it is connected to another");
        never.send_to(b"who", backend).expect("it is not connected");
        let again = terminate_udp(here().as_fd(), backend, &named).expect("nothing to do");
        assert_eq!(again, Terminated::default());
    });
}

#[test]
fn sockets_of_both_families_are_ended_and_mapped_addresses_are_the_same_backend() {
    isolated(|_| {
        let v6 = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).expect("a backend");
        let v6 = v6.local_addr().expect("its address");
        let v4 = SocketAddr::from(UdpServer::start(1).address);
        let mapped = match v4.ip() {
            IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), v4.port()),
            IpAddr::V6(_) => unreachable!("an IPv4 server"),
        };
        let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        for (backend, peer) in [(v6, v6), (v4, mapped), (mapped, v4), (mapped, mapped)] {
            let from = if peer.is_ipv4() {
                Ipv4Addr::UNSPECIFIED.into()
            } else {
                any
            };
            let socket = connected(from, peer);
            let done = terminate_udp(here().as_fd(), backend, &cookies([&socket])).expect("ended");
            assert_eq!(done, ENDED, "{peer}, as {backend}");
            is_ended(&socket);
        }
    });
}

#[test]
fn network_namespaces_of_processes_are_found_once() {
    isolated(|_| {
        // That of the process, which is the one of its first thread; this thread is in another.
        let of_process = File::open("/proc/self/ns/net").expect("a namespace").metadata();
        let of_process = of_process.expect("its number").ino();
        let found = namespaces().found;
        let same: Vec<_> = found.iter().filter(|found| found.inode == of_process).collect();
        let [same] = same[..] else {
            panic!("expected it once: {found:?}");
        };
        let opened = same.open().expect("opened").expect("it is there");
        assert_eq!(opened.metadata().expect("its number").ino(), of_process);
    });
}
