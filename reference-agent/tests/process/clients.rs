//! Servers that answer with their number, and clients that connect again and again and record the answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use nix::libc::ECONNABORTED;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::world::{Protocol, Server, TCP, Target, UDP, World, addresses};

/// An answer over loopback does not take longer, on any machine; where none is allowed, it is waited for as long.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// More mistakes than anybody reads.
const MOST_WRONG: usize = 20;
/// Between two rounds of a client, so that agents get to run where there are few processors: without it, clients and servers take
/// two thirds of them. What an agent leaves stays until the next one has started, which takes half a second at least: each target
/// is asked dozens of times meanwhile.
const PAUSE: Duration = Duration::from_millis(10);

/// Starts servers: each sends its number to every client, then returns what it gets; over UDP it answers with its
/// number and what it got. They run as long as the runtime.
pub(crate) async fn serve(servers: impl IntoIterator<Item = Server>) {
    for server in servers {
        for address in addresses(server) {
            let listener = TcpListener::bind((address, TCP.0)).await.expect("a port");
            tokio::spawn(serve_tcp(listener, server));
            let socket = tokio::net::UdpSocket::bind((address, UDP.0))
                .await
                .expect("a port");
            tokio::spawn(serve_udp(socket, server));
        }
    }
}

async fn serve_tcp(listener: TcpListener, server: Server) {
    loop {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        tokio::spawn(async move {
            // Clients may be gone at any time.
            let _ = stream.write_all(&[server]).await;
            let (mut reader, mut writer) = stream.split();
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
            let _ = writer.shutdown().await;
            let _ = reader.read(&mut [0]).await;
        });
    }
}

async fn serve_udp(socket: tokio::net::UdpSocket, server: Server) {
    let mut buffer = [0; 64];
    loop {
        // A client that is gone shows as an error of a later call.
        let Ok((length, from)) = socket.recv_from(&mut buffer[1..]).await else {
            continue;
        };
        buffer[0] = server;
        let _ = socket.send_to(&buffer[..=length], from).await;
    }
}

/// The result of one connection.
#[derive(Debug)]
pub(crate) enum Got {
    /// A server.
    Server(Server),
    /// No server, and why.
    Nobody(io::Error),
}

/// One new connection, or one datagram from a new socket and its answer.
pub(crate) fn ask((protocol, address): Target) -> Got {
    let answer = match protocol {
        Protocol::Tcp => ask_tcp(address),
        Protocol::Udp => ask_udp(address),
    };
    answer.map_or_else(Got::Nobody, Got::Server)
}

fn ask_tcp(address: SocketAddr) -> io::Result<Server> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    // Ended by a reset: no port is left waiting.
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    let mut said = [0];
    stream.read_exact(&mut said)?;
    Ok(said[0])
}

fn ask_udp(address: SocketAddr) -> io::Result<Server> {
    ask_socket(&connected(address)?)
}

/// A UDP socket of the calling thread's network namespace, connected.
pub(crate) fn connected(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = if address.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_read_timeout(Some(ANSWER_LIMIT))?;
    socket.connect(address)?;
    Ok(socket)
}

/// Who answers a datagram of it.
pub(crate) fn ask_socket(socket: &UdpSocket) -> io::Result<Server> {
    socket.send(b"?")?;
    let mut said = [0; 2];
    let length = socket.recv(&mut said)?;
    if length == 2 && said[1] == b'?' {
        Ok(said[0])
    } else {
        Err(io::Error::other(format!(
            "an answer of {length} octets: {said:?}"
        )))
    }
}

/// What may come of asking.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Allowed {
    servers: BTreeSet<Server>,
    nobody: bool,
    /// A UDP socket may be ended because its server is leaving.
    ended: bool,
}

/// Clients that ask every target in turn, again and again.
pub(crate) struct Clients {
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    allowed: Mutex<BTreeMap<Target, Allowed>>,
    wrong: Mutex<Vec<String>>,
    answers: AtomicU64,
    done: AtomicBool,
}

impl Clients {
    /// One client for each protocol. Nothing is judged yet.
    pub(crate) fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let threads = [Protocol::Tcp, Protocol::Udp].map(|protocol| {
            let shared = shared.clone();
            thread::spawn(move || shared.ask_on(protocol))
        });
        Self {
            shared,
            threads: threads.into(),
        }
    }

    /// From now on clients may reach the servers of any of these worlds. `unserved`: or none.
    pub(crate) fn allow(&self, worlds: &[&World], unserved: bool) {
        let mut allowed: BTreeMap<Target, Allowed> = BTreeMap::new();
        let served: Vec<_> = worlds.iter().map(|world| world.served()).collect();
        for target in served.iter().flat_map(BTreeMap::keys) {
            let each: Vec<_> = served.iter().map(|served| served.get(target)).collect();
            // From one Service to another there is a time without either.
            let moved = each.windows(2).any(|pair| owner(pair[0]) != owner(pair[1]));
            let empty = each.iter().flatten().any(|(_, servers)| servers.is_empty());
            let one = Allowed {
                nobody: unserved || moved || empty,
                ended: each.windows(2).any(|pair| pair[0] != pair[1]),
                servers: each
                    .into_iter()
                    .flatten()
                    .flat_map(|(_, servers)| servers)
                    .copied()
                    .collect(),
            };
            allowed.insert(*target, one);
        }
        *self.shared.allowed() = allowed;
    }

    /// Fails if a client got what it must not.
    pub(crate) fn assert_content(&self, when: impl FnOnce() -> String) {
        let wrong = self.shared.wrong();
        assert!(wrong.is_empty(), "{}: {}", when(), wrong.join("\n"));
    }

    /// Answers so far.
    pub(crate) fn answers(&self) -> u64 {
        self.shared.answers.load(Ordering::Relaxed)
    }

    /// Ends them.
    pub(crate) fn stop(self) {
        self.shared.done.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a client ends well");
        }
    }
}

fn owner(served: Option<&(&'static str, BTreeSet<Server>)>) -> Option<&'static str> {
    served.map(|(owner, _)| *owner)
}

impl Shared {
    fn allowed(&self) -> MutexGuard<'_, BTreeMap<Target, Allowed>> {
        self.allowed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wrong(&self) -> MutexGuard<'_, Vec<String>> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask_on(&self, protocol: Protocol) {
        while !self.done.load(Ordering::Relaxed) {
            let targets: Vec<Target> = self.allowed().keys().copied().collect();
            for target in targets.into_iter().filter(|(of, _)| *of == protocol) {
                self.ask(target);
            }
            thread::sleep(PAUSE);
        }
    }

    /// What is allowed must be so all the while from the question to the answer.
    fn ask(&self, target: Target) {
        let before = self.allowed().get(&target).cloned();
        let got = ask(target);
        let after = self.allowed().get(&target).cloned();
        let (Some(before), Some(after)) = (before, after) else {
            return;
        };
        let may = |allowed: &Allowed| match &got {
            Got::Server(server) => allowed.servers.contains(server),
            Got::Nobody(error) => {
                allowed.nobody || (allowed.ended && error.raw_os_error() == Some(ECONNABORTED))
            }
        };
        self.answers.fetch_add(1, Ordering::Relaxed);
        if !may(&before) && !may(&after) {
            let (protocol, address) = target;
            let mut wrong = self.wrong();
            if wrong.len() < MOST_WRONG {
                wrong.push(format!("{protocol:?} {address}: {got:?}, allowed was {after:?}"));
            }
        }
    }
}
