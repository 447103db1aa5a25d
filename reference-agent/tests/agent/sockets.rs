//! What clients meet: the agent's parts over the kernel's maps and programs, and sockets of both families.
//!
//! Each test runs in a process of its own, because a cgroup holds processes, and in a network namespace of its own,
//! where every port is free and nothing but loopback can be reached.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
    time::Instant,
};

use reference_agent::{
    control::{Control, Planner},
    datapath::Datapath,
    maps::kernel::KernelMaps,
    model::Event,
    names::ObjectName,
    plan::{Perspective, Selection},
    testing::{
        objects::{service, slice},
        synced,
    },
};
use rstest::rstest;
use test_network::Links;
use testing::{isolation::Own, patience::LIMIT};

use crate::place::Place;

const V4: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
const V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, 1);

/// Where clients of either family, and IPv6 sockets that mean IPv4, find the Service.
fn cluster_ips() -> [IpAddr; 3] {
    [V4.into(), V6.into(), V4.to_ipv6_mapped().into()]
}

/// `None`: this is not the process to go on with; the other one has passed, or was to be left out.
fn place() -> Option<Place> {
    let name = testing::current();
    let own = Own::of(&name)?;
    fs::write(own.cgroup.join("cgroup.procs"), "0").expect("to enter the test's cgroup");
    let mut place = Place::new(&name)?;
    let links = Links::here().expect("netlink");
    links.up("lo").expect("loopback comes up");
    place.cgroup = own.cgroup;
    Some(place)
}

/// A node whose maps say what these events say, with the programs attached.
struct Served {
    control: Control<Planner, KernelMaps>,
    _place: Place,
}

impl Served {
    fn new(place: Place, selection: Selection, events: impl IntoIterator<Item = Event>) -> Self {
        let mut datapath = place.open();
        let planner = Planner::new(Perspective {
            node: "here".to_owned(),
            selection,
            ..Perspective::default()
        });
        let control = Control::new(planner, datapath.maps()).expect("readable maps");
        let mut served = Self {
            control,
            _place: place,
        };
        served.tell(events.into_iter().chain(synced()));
        datapath.attach().expect("attached");
        served
    }

    fn tell(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.control.apply(event);
        }
        self.control.reconcile(Instant::now());
        assert_eq!(self.control.troubles(), [""; 0]);
    }
}

/// A Service of both families with two backends in each; each of them says which it is.
fn events() -> Vec<Event> {
    let ips = format!("{V4},{V6}");
    vec![
        Event::ServiceApplied(service(
            "t/x",
            &ips,
            &["TCP 80 http", "UDP 53 dns", "TCP 82 none"],
        )),
        Event::SliceApplied(slice(
            "t/4",
            "x",
            &["TCP 8080 http", "UDP 5353 dns"],
            &["127.0.0.1", "127.0.0.2@here"],
        )),
        Event::SliceApplied(slice("t/6", "x", &["TCP 8080 http", "UDP 5353 dns"], &["::1"])),
    ]
}

/// Answers every connection and every datagram with the address that it has come to. Ends with the process.
fn serve(ip: &str) {
    let ip: IpAddr = ip.parse().expect("an address");
    let listener = TcpListener::bind((ip, 8080)).expect("a port");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.and_then(|mut stream| stream.write_all(ip.to_string().as_bytes()));
        }
    });
    let socket = UdpSocket::bind((ip, 5353)).expect("a port");
    thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((_, client)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(ip.to_string().as_bytes(), client);
        }
    });
}

/// Who answers a connection, and who the client thinks that is.
fn asked(ip: IpAddr, port: u16) -> io::Result<(String, SocketAddr)> {
    let mut stream = TcpStream::connect((ip, port))?;
    let mut answer = String::new();
    let peer = stream.peer_addr()?;
    stream.read_to_string(&mut answer)?;
    Ok((answer, peer))
}

/// The same for a datagram of a socket that is not connected.
fn asked_by_datagram(ip: IpAddr, port: u16) -> io::Result<(String, SocketAddr)> {
    let any: IpAddr = if ip.is_ipv6() {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_read_timeout(Some(LIMIT))?;
    socket.send_to(b"who?", (ip, port))?;
    let mut answer = [0; 64];
    let (length, source) = socket.recv_from(&mut answer)?;
    Ok((String::from_utf8_lossy(&answer[..length]).into_owned(), source))
}

fn error<T: std::fmt::Debug>(result: io::Result<T>) -> Option<i32> {
    result.expect_err("nobody is there").raw_os_error()
}

const REFUSED: Option<i32> = Some(nix::libc::ECONNREFUSED);
const UNREACHABLE: Option<i32> = Some(nix::libc::ENETUNREACH);

#[rstest]
fn clients_of_both_families_are_served_by_backends_of_theirs(
    #[values(Selection::Random, Selection::Maglev)] selection: Selection,
) {
    let Some(place) = place() else { return };
    for ip in ["127.0.0.1", "127.0.0.2", "::1"] {
        serve(ip);
    }
    let _served = Served::new(place, selection, events());
    for ip in cluster_ips() {
        let expected: &[&str] = if ip == IpAddr::from(V6) {
            &["::1"]
        } else {
            &["127.0.0.1", "127.0.0.2"]
        };
        let mut seen = BTreeSet::new();
        // Of two backends that are equally likely, one is never met in 2⁻⁶³ of all runs.
        for _ in 0..64 {
            let (answer, peer) = asked(ip, 80).expect("the Service answers");
            assert_eq!(
                peer,
                SocketAddr::new(ip, 80),
                "the client sees the Service, not the backend"
            );
            seen.insert(answer);
            let (answer, source) = asked_by_datagram(ip, 53).expect("the Service answers");
            assert_eq!(
                source,
                SocketAddr::new(ip, 53),
                "the client sees the Service, not the backend"
            );
            seen.insert(answer);
        }
        assert!(seen.iter().eq(expected), "{ip} is served by {seen:?}");
    }
}

#[test]
fn what_is_no_port_of_a_service_is_refused_at_once_until_the_last_service_of_the_address_is_gone() {
    let Some(place) = place() else {
        return;
    };
    let mut served = Served::new(place, Selection::Random, events());
    let ips = format!("{V4},{V6}");
    let other = Event::ServiceApplied(service("t/y", &ips, &["TCP 83"]));
    served.tell([other]);
    for ip in cluster_ips() {
        assert_eq!(error(asked(ip, 81)), REFUSED, "{ip}: no such port");
        assert_eq!(
            error(asked_by_datagram(ip, 80)),
            REFUSED,
            "{ip}: not by this protocol"
        );
        assert_eq!(error(asked(ip, 82)), REFUSED, "{ip}: no backend");
    }
    served.tell([Event::ServiceDeleted(ObjectName::new("t", "x"))]);
    for ip in cluster_ips() {
        assert_eq!(
            error(asked(ip, 80)),
            REFUSED,
            "{ip}: another Service has the address still"
        );
    }
    served.tell([Event::ServiceDeleted(ObjectName::new("t", "y"))]);
    for ip in cluster_ips() {
        assert_eq!(
            error(asked(ip, 80)),
            UNREACHABLE,
            "{ip}: left alone, and there is no route"
        );
        assert_eq!(
            error(asked_by_datagram(ip, 80)),
            UNREACHABLE,
            "{ip}: left alone, and there is no route"
        );
    }
}
