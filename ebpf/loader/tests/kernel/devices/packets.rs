//! Packets from a client outside to pods here and elsewhere, and back.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
};

use lb_abi::{
    Address, Backend, BackendId, Counter, Frontend, FrontendKey, Port, Service, ServiceId, SlotKey, TCP, UDP,
    address_flags, backend_flags,
};
use lb_loader::{Datapath, DeviceKind, DeviceMode};
use testing::patience::LIMIT;

use super::{
    MODES,
    network::{FAMILIES, FAR, Family, Namespace, Network, POD, UPLINK},
    options,
};
use crate::support::{Node, isolated};

pub(super) const NODE_PORT: u16 = 30_080;
const VIP_PORT: u16 = 80;

/// Opens; nothing is attached.
pub(super) fn open(node: &Node, mode: DeviceMode) -> Datapath {
    Datapath::open(&options(node, mode)).expect("the datapath opens")
}

/// Attaches to all devices.
pub(super) fn attach(datapath: &mut Datapath) {
    for (device, kind) in [
        (UPLINK, DeviceKind::Node),
        (FAR, DeviceKind::Node),
        (POD, DeviceKind::Pod),
        ("lo", DeviceKind::Loopback),
    ] {
        datapath.attach_device(device, kind).expect("attached");
    }
}

fn start(node: &Node, mode: DeviceMode) -> Datapath {
    let mut datapath = open(node, mode);
    attach(&mut datapath);
    datapath
}

/// Puts the addresses of a family.
pub(super) fn announce(datapath: &Datapath, family: Family) {
    let addresses = &datapath.maps().addresses;
    for (address, flags) in [
        (family.node, address_flags::NODE),
        (family.vip, address_flags::VIP),
    ] {
        addresses
            .put(&address.into(), &flags)
            .expect("the address is put");
    }
}

/// Puts a service port with at most one backend, at the node port and at the VIP of a family.
pub(super) fn expose(
    datapath: &Datapath,
    family: Family,
    protocol: u8,
    id: ServiceId,
    backend: Option<(SocketAddr, u8)>,
) {
    let maps = datapath.maps();
    if let Some((address, flags)) = backend {
        let backend: BackendId = id;
        let value = Backend {
            address: address.ip().into(),
            port: Port::new(address.port()),
            protocol,
            flags,
        };
        maps.backends.put(&backend, &value).expect("the backend is put");
        let slot = SlotKey {
            service: id,
            generation: 1,
            index: 0,
        };
        maps.slots.put(&slot, &backend).expect("the slot is put");
    }
    let service = Service {
        generation: 1,
        slots: u32::from(backend.is_some()),
    };
    maps.services.put(&id, &service).expect("the service is put");
    let unspecified: Address = match family.node {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED).into(),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED).into(),
    };
    for (address, port) in [(unspecified, NODE_PORT), (family.vip.into(), VIP_PORT)] {
        let key = FrontendKey {
            address,
            port: Port::new(port),
            protocol,
            pad: 0,
        };
        let frontend = Frontend {
            internal: id,
            external: id,
            ..Frontend::default()
        };
        maps.frontends.put(&key, &frontend).expect("the frontend is put");
    }
}

/// Both ways to a service.
pub(super) fn ways(family: Family) -> [SocketAddr; 2] {
    [
        SocketAddr::new(family.node, NODE_PORT),
        SocketAddr::new(family.vip, VIP_PORT),
    ]
}

/// Starts servers for both protocols, at one port, that answer each line with their own address and the client's.
pub(super) fn serve(namespace: &Namespace, address: IpAddr) -> SocketAddr {
    namespace.run(move || serve_here(address))
}

/// The same, in the calling thread's namespace.
pub(super) fn serve_here(address: IpAddr) -> SocketAddr {
    let listener = TcpListener::bind((address, 0)).expect("a listener");
    let own = listener.local_addr().expect("its address");
    let socket = UdpSocket::bind(own).expect("the same port");
    thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((_, client)) = socket.recv_from(&mut buffer) {
            // A client that is gone already wants no answer.
            let _ = socket.send_to(format!("{own} {client}\n").as_bytes(), client);
        }
    });
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || answer(own, &client));
        }
    });
    own
}

fn answer(own: SocketAddr, client: &TcpStream) -> io::Result<()> {
    let peer = client.peer_addr()?;
    for line in BufReader::new(client).lines() {
        line?;
        (&*client).write_all(format!("{own} {peer}\n").as_bytes())?;
    }
    Ok(())
}

/// A client's connection or socket.
pub(super) enum Client {
    Tcp(BufReader<TcpStream>),
    Udp(UdpSocket),
}

impl Client {
    pub(super) fn connect(protocol: u8, address: SocketAddr) -> io::Result<Self> {
        if protocol == TCP {
            return TcpStream::connect_timeout(&address, LIMIT).and_then(Self::of_stream);
        }
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.set_read_timeout(Some(LIMIT))?;
        socket.connect(address)?;
        Ok(Self::Udp(socket))
    }

    pub(super) fn of_stream(stream: TcpStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Self::Tcp(BufReader::new(stream)))
    }

    /// Asks once, with no second try: who answered, and whom that one saw.
    pub(super) fn ask(&mut self) -> io::Result<(SocketAddr, SocketAddr)> {
        let mut said = String::new();
        match self {
            Self::Tcp(stream) => {
                stream.get_mut().write_all(b"who\n")?;
                stream.read_line(&mut said)?;
            }
            Self::Udp(socket) => {
                socket.send(b"who")?;
                let mut buffer = [0; 128];
                let length = socket.recv(&mut buffer)?;
                said.push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        }
        let mut addresses = said.split_whitespace().map(str::parse);
        match (addresses.next(), addresses.next()) {
            (Some(Ok(identity)), Some(Ok(seen))) => Ok((identity, seen)),
            _ => Err(io::Error::other(format!("somebody else answered: {said:?}"))),
        }
    }
}

#[track_caller]
pub(super) fn counted(datapath: &Datapath, never: &[Counter]) {
    let counts = datapath.maps().counters().expect("the counters are read");
    let shown: Vec<(&str, u64)> = Counter::ALL
        .into_iter()
        .map(|counter| (counter.name(), counts.get(counter)))
        .filter(|(_, count)| *count > 0)
        .collect();
    for counter in never {
        assert_eq!(counts.get(*counter), 0, "{} in {shown:?}", counter.name());
    }
}

/// What nothing that is tried here may count.
pub(super) const NEVER: [Counter; 8] = [
    Counter::PacketUnreadable,
    Counter::DroppedMalformed,
    Counter::DroppedPortsExhausted,
    Counter::DroppedFlowsFull,
    Counter::DroppedRoute,
    Counter::DroppedMartian,
    Counter::DroppedRewrite,
    Counter::DroppedHole,
];

#[test]
fn a_client_outside_reaches_a_pod_of_this_node_and_one_elsewhere() {
    isolated(|node| {
        let network = Network::new();
        for mode in MODES {
            let datapath = start(node, mode);
            for family in FAMILIES {
                announce(&datapath, family);
                let (here, there) = (
                    serve(&network.pod, family.pod),
                    serve(&network.remote, family.remote),
                );
                for protocol in [TCP, UDP] {
                    // The pod here sees the client; the one elsewhere sees this node, by which it answers.
                    for (backend, flags, seen) in [
                        (here, backend_flags::LOCAL, family.client),
                        (there, 0, family.node),
                    ] {
                        expose(&datapath, family, protocol, 1, Some((backend, flags)));
                        for way in ways(family) {
                            let (identity, source) = network
                                .client
                                .run(move || Client::connect(protocol, way)?.ask())
                                .unwrap_or_else(|error| {
                                    panic!("{mode:?}, protocol {protocol}, {way} to {backend}: {error}")
                                });
                            assert_eq!(identity, backend, "{mode:?}, protocol {protocol}, {way}");
                            assert_eq!(
                                source.ip(),
                                seen,
                                "{mode:?}, protocol {protocol}, {way} to {backend}"
                            );
                        }
                    }
                }
            }
            counted(&datapath, &NEVER);
            let counts = datapath.maps().counters().expect("the counters are read");
            assert!(counts.get(Counter::FlowOpened) >= 16, "{counts:?}");
            assert!(datapath.maps().service_traffic.get(1).connections >= 16);
        }
    });
}

#[test]
fn a_client_of_a_service_without_backends_is_told_at_once() {
    isolated(|node| {
        let network = Network::new();
        for mode in MODES {
            let datapath = start(node, mode);
            for family in FAMILIES {
                announce(&datapath, family);
                for protocol in [TCP, UDP] {
                    expose(&datapath, family, protocol, 1, None);
                    let unknown = SocketAddr::new(family.vip, VIP_PORT + 1);
                    for way in ways(family).into_iter().chain([unknown]) {
                        let asked = network.client.run(move || Client::connect(protocol, way)?.ask());
                        match asked {
                            Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) => {}
                            other => panic!("{mode:?}, protocol {protocol}, {way}: {other:?}"),
                        }
                    }
                }
            }
            counted(&datapath, &NEVER);
        }
    });
}

/// Asks without end, on one connection and with a new one each time; counts.
pub(super) fn ask_on(
    protocol: u8,
    way: SocketAddr,
    backend: SocketAddr,
    done: &AtomicBool,
    answers: &AtomicU32,
) -> io::Result<()> {
    let failed = |what: &str, error: io::Error| {
        let times = answers.load(Ordering::Relaxed);
        io::Error::other(format!(
            "{what}, protocol {protocol} to {way}, after {times} times: {error}"
        ))
    };
    let mut lasting = Client::connect(protocol, way)?;
    while !done.load(Ordering::Relaxed) {
        let mut new = Client::connect(protocol, way).map_err(|error| failed("connect", error))?;
        for (client, what) in [(&mut lasting, "lasting"), (&mut new, "new")] {
            let (identity, _) = client.ask().map_err(|error| failed(what, error))?;
            if identity != backend {
                return Err(failed(what, io::Error::other(format!("{identity} answered"))));
            }
        }
        answers.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

#[test]
fn restarts_lose_no_packet_of_any_client() {
    /// Of the agent, while clients ask.
    const RESTARTS: u32 = 3;
    /// Entries for more connections than clients open meanwhile, also where a restart takes minutes: what a full LRU map gives up
    /// is another matter, and a loss on 6.1 (`DATAPATH.md`).
    const CONNTRACK: u32 = 1 << 19;
    isolated(|node| {
        let network = Network::new();
        for mode in MODES {
            let mut options = options(node, mode);
            options.flows = Some(CONNTRACK);
            let start = || {
                let mut datapath = Datapath::open(&options).expect("the datapath opens");
                attach(&mut datapath);
                datapath
            };
            let mut datapath = start();
            let done = Arc::new(AtomicBool::new(false));
            let mut clients = Vec::new();
            for (id, (family, protocol)) in (1..).zip(
                FAMILIES
                    .into_iter()
                    .flat_map(|family| [(family, TCP), (family, UDP)]),
            ) {
                announce(&datapath, family);
                // TCP to the pod here, UDP to the one elsewhere, by SNAT.
                let (backend, flags) = if protocol == TCP {
                    (serve(&network.pod, family.pod), backend_flags::LOCAL)
                } else {
                    (serve(&network.remote, family.remote), 0)
                };
                expose(&datapath, family, protocol, id, Some((backend, flags)));
                let [way, _] = ways(family);
                let answers = Arc::new(AtomicU32::new(0));
                let (done, counted) = (done.clone(), answers.clone());
                let client = network
                    .client
                    .run(move || thread::spawn(move || ask_on(protocol, way, backend, &done, &counted)));
                clients.push((client, answers));
            }
            for _ in 0..RESTARTS {
                let before: Vec<u32> = clients
                    .iter()
                    .map(|(_, answers)| answers.load(Ordering::Relaxed))
                    .collect();
                // The links are held by their pins alone.
                drop(datapath);
                datapath = start();
                assert!(datapath.adopted());
                while clients.iter().zip(&before).any(|((client, answers), before)| {
                    !client.is_finished() && answers.load(Ordering::Relaxed) == *before
                }) {
                    thread::yield_now();
                }
            }
            done.store(true, Ordering::Relaxed);
            for (client, _) in clients {
                let asked = client.join().expect("no panic");
                asked.unwrap_or_else(|error| {
                    let counts = datapath.maps().counters();
                    panic!("{mode:?}: a client was not served: {error}; {counts:?}")
                });
            }
            counted(&datapath, &NEVER);
            for device in [UPLINK, FAR, POD, "lo"] {
                datapath.detach_device(device).expect("detached");
            }
        }
    });
}
