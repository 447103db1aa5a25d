//! Servers that answer with their name and the client's address, and clients.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};

/// Longer than anything here takes, on any machine; a client that waits this long is not served.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
/// How long a client waits that is expected not to be served. What is dropped is dropped at once.
pub(crate) const SILENT: Duration = Duration::from_millis(700);
/// Of every server.
pub(crate) const TCP: u16 = 8080;
/// Of every server.
pub(crate) const UDP: u16 = 5353;

/// The server that answered, and the address that it saw.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Answer {
    pub(crate) server: IpAddr,
    pub(crate) seen: IpAddr,
}

/// Serves TCP and UDP at an address of the calling thread's namespace, until the process ends.
pub(crate) fn serve(address: IpAddr) {
    let listener = TcpListener::bind((address, TCP)).expect("a listener");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let Ok(peer) = stream.peer_addr() else { continue };
            let said = format!("{address} {}", peer.ip());
            // A client that is gone already wants no answer.
            let _ = stream.write_all(said.as_bytes());
        }
    });
    let socket = UdpSocket::bind((address, UDP)).expect("a socket");
    thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((_, client)) = socket.recv_from(&mut buffer) {
            let said = format!("{address} {}", client.ip());
            let _ = socket.send_to(said.as_bytes(), client);
        }
    });
}

fn read(said: &str) -> io::Result<Answer> {
    let answer = said.split_once(' ').and_then(|(server, seen)| {
        Some(Answer {
            server: server.parse().ok()?,
            seen: seen.parse().ok()?,
        })
    });
    answer.ok_or_else(|| io::Error::other(format!("somebody else answered: {said:?}")))
}

/// Connects from an address of the calling thread's namespace, and asks.
pub(crate) fn ask(from: IpAddr, to: SocketAddr, limit: Duration) -> io::Result<Answer> {
    let domain = Domain::for_address(to);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    socket.connect_timeout(&to.into(), limit)?;
    let mut stream: TcpStream = socket.into();
    if stream.peer_addr()? != to {
        return Err(io::Error::other("the peer is not who was asked"));
    }
    stream.set_read_timeout(Some(limit))?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    read(&said)
}

/// The same by a datagram of a socket that is not connected: the answer must come from who was asked.
pub(crate) fn ask_udp(from: IpAddr, to: SocketAddr, limit: Duration) -> io::Result<Answer> {
    let socket = UdpSocket::bind((from, 0))?;
    socket.set_read_timeout(Some(limit))?;
    socket.send_to(b"who?", to)?;
    let mut buffer = [0; 128];
    let (length, source) = socket.recv_from(&mut buffer)?;
    if source != to {
        return Err(io::Error::other(format!("{source} answered for {to}")));
    }
    read(&String::from_utf8_lossy(&buffer[..length]))
}
