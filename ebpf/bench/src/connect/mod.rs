//! What `connect()` costs: real sockets on the loopback device, in a network namespace of their own.
//!
//! The programs that a socket meets are those of the cgroup that it was made in. So sockets of all kinds are made
//! first, each in its cgroup, and then connect in turns: what else happens on the machine happens to all of them.

mod node;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use lb_abi::{Address, Backend, Frontend, FrontendKey, Port, Service, SlotKey, TCP, UDP, address_flags};
use lb_loader::Datapath;
use lb_packets::cgroup::{Cgroups, enter};
use socket2::{Domain, Socket, Type};

use self::node::Node;
use crate::{
    sample::Sample,
    services::{self, MANY},
};

/// Cgroups: without programs; whose programs know one service; whose programs know many.
const CGROUPS: [&str; 3] = [BARE, ONE, ALL];
const BARE: &str = "bare";
const ONE: &str = "one";
const ALL: &str = "many";

/// Sockets of each kind that connect in turns; less together than a listener's queue takes.
const BATCH: usize = 100;
const BATCHES: usize = 20;
/// What a listener's queue takes (`net.core.somaxconn`).
const QUEUE: i32 = 4096;

/// What one kind of connect costs.
pub(crate) struct Cost {
    pub(crate) protocol: &'static str,
    pub(crate) family: &'static str,
    /// To what, by what.
    pub(crate) kind: &'static str,
    pub(crate) sample: Sample,
}

/// In which cgroup a socket is made, and to what it connects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// No programs.
    Bare,
    /// A server's own address, with one service, or many, in the maps.
    Passed { many: bool },
    /// A ClusterIP.
    Service { many: bool },
}

impl Kind {
    const ALL: [Self; 5] = [
        Self::Bare,
        Self::Passed { many: false },
        Self::Passed { many: true },
        Self::Service { many: false },
        Self::Service { many: true },
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Bare => "no programs",
            Self::Passed { many: false } => "no service's, 1 service",
            Self::Passed { many: true } => "no service's, 50,000 services",
            Self::Service { many: false } => "to a service, 1 service",
            Self::Service { many: true } => "to a service, 50,000 services",
        }
    }
}

/// Measures every kind, for both protocols and families. On a thread of its own: it changes namespaces.
pub(crate) fn measure() -> anyhow::Result<Vec<Cost>> {
    thread::spawn(on_this_thread)
        .join()
        .map_err(|_| anyhow!("the measuring thread panicked; it has said why above"))?
}

fn on_this_thread() -> anyhow::Result<Vec<Cost>> {
    let cgroups = Cgroups::create("lb-bench-", &CGROUPS)?;
    let node = Node::enter()?;
    let one = node.datapath(ONE, &cgroups.below(ONE))?;
    let many = node.datapath(ALL, &cgroups.below(ALL))?;
    services::fill(many.maps(), MANY - 1)?;
    let mut costs = Vec::new();
    for (protocol, number, kind) in [("TCP", TCP, Type::STREAM), ("UDP", UDP, Type::DGRAM)] {
        for (family, loopback, cluster_ip) in families() {
            let server = Server::start(kind, loopback)?;
            let service = SocketAddr::new(cluster_ip, 80);
            for datapath in [&one, &many] {
                put(datapath, number, service, server.address)?;
            }
            let round = Round {
                kind,
                server: &server,
                service,
                cgroups: &cgroups,
            };
            for (kind, sample) in Kind::ALL.into_iter().zip(round.measure()?) {
                costs.push(Cost {
                    protocol,
                    family,
                    kind: kind.name(),
                    sample,
                });
            }
        }
    }
    Ok(costs)
}

/// Loopback, and a ClusterIP.
fn families() -> [(&'static str, IpAddr, IpAddr); 2] {
    let v6 = Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, 1);
    [
        (
            "IPv4",
            Ipv4Addr::LOCALHOST.into(),
            Ipv4Addr::new(10, 96, 0, 1).into(),
        ),
        ("IPv6", Ipv6Addr::LOCALHOST.into(), v6.into()),
    ]
}

/// The service port that is asked for: with one backend, in the place of the one before.
fn put(datapath: &Datapath, protocol: u8, service: SocketAddr, server: SocketAddr) -> anyhow::Result<()> {
    const ID: u32 = 1;
    let maps = datapath.maps();
    let backend = Backend {
        address: Address::from(server.ip()),
        port: Port::new(server.port()),
        protocol,
        flags: 0,
    };
    let key = FrontendKey {
        address: Address::from(service.ip()),
        port: Port::new(service.port()),
        protocol,
        pad: 0,
    };
    for (other, _) in maps
        .frontends
        .entries()?
        .into_iter()
        .filter(|(_, frontend)| frontend.internal == ID)
    {
        maps.frontends.delete(&other)?;
    }
    maps.backends.put(&ID, &backend)?;
    maps.slots.put(
        &SlotKey {
            service: ID,
            generation: 1,
            index: 0,
        },
        &ID,
    )?;
    maps.services.put(
        &ID,
        &Service {
            generation: 1,
            slots: 1,
        },
    )?;
    maps.frontends.put(
        &key,
        &Frontend {
            internal: ID,
            external: ID,
            ..Frontend::default()
        },
    )?;
    maps.addresses.put(&key.address, &address_flags::VIP)?;
    Ok(())
}

/// The server that all of them reach.
struct Server {
    socket: Socket,
    address: SocketAddr,
}

impl Server {
    fn start(kind: Type, at: IpAddr) -> anyhow::Result<Self> {
        let at = SocketAddr::new(at, 0);
        let socket = Socket::new(Domain::for_address(at), kind, None).context("failed to make a socket")?;
        socket
            .bind(&at.into())
            .with_context(|| format!("failed to bind {at}"))?;
        if kind == Type::STREAM {
            socket.listen(QUEUE).context("failed to listen")?;
            socket.set_nonblocking(true)?;
        }
        let address = socket
            .local_addr()?
            .as_socket()
            .context("a server without an address")?;
        Ok(Self { socket, address })
    }

    /// Closes the accepted connections.
    fn drain(&self) {
        while self.socket.accept().is_ok() {}
    }
}

/// One protocol and family.
struct Round<'a> {
    kind: Type,
    server: &'a Server,
    service: SocketAddr,
    cgroups: &'a Cgroups,
}

impl Round<'_> {
    fn measure(&self) -> anyhow::Result<[Sample; Kind::ALL.len()]> {
        let mut samples = Kind::ALL.map(|_| Sample::default());
        for _ in 0..BATCHES {
            let mut sockets = Vec::new();
            for kind in Kind::ALL {
                sockets.push((kind, self.sockets(kind)?));
            }
            for turn in 0..BATCH {
                for place in 0..sockets.len() {
                    // Another one begins in each turn.
                    let index = (turn + place) % sockets.len();
                    let (kind, sockets) = &sockets[index];
                    samples[index].add(self.connect(&sockets[turn], *kind)?);
                }
            }
            drop(sockets);
            self.server.drain();
        }
        self.cgroups.leave()?;
        Ok(samples)
    }

    fn sockets(&self, kind: Kind) -> anyhow::Result<Vec<Socket>> {
        match kind {
            Kind::Bare => enter(&self.cgroups.below(BARE))?,
            Kind::Passed { many: false } | Kind::Service { many: false } => {
                enter(&self.cgroups.below(ONE))?;
            }
            Kind::Passed { many: true } | Kind::Service { many: true } => {
                enter(&self.cgroups.below(ALL))?;
            }
        }
        let socket = || {
            let socket = Socket::new(Domain::for_address(self.service), self.kind, None)?;
            if self.kind == Type::STREAM {
                // Closed by a reset: no port stays behind in TIME-WAIT.
                socket.set_linger(Some(Duration::ZERO))?;
            }
            Ok(socket)
        };
        (0..BATCH)
            .map(|_| socket())
            .collect::<std::io::Result<_>>()
            .context("failed to make sockets")
    }

    /// Nanoseconds.
    fn connect(&self, socket: &Socket, kind: Kind) -> anyhow::Result<u64> {
        let to = match kind {
            Kind::Bare | Kind::Passed { .. } => self.server.address,
            Kind::Service { .. } => self.service,
        };
        let address = to.into();
        let begun = Instant::now();
        let result = socket.connect(&address);
        let took = begun.elapsed();
        result.with_context(|| format!("failed to connect to {to} ({})", kind.name()))?;
        Ok(u64::try_from(took.as_nanos())?)
    }
}
