//! Servers that say who they are, and clients.

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket},
    thread,
};
use testing::patience::LIMIT;

/// A TCP server that says its own address to whoever connects; ends with the process.
pub(crate) struct TcpServer {
    pub(crate) address: SocketAddrV4,
}

impl TcpServer {
    /// On a port of the kernel's choice, at 127.0.0.`last`.
    pub(crate) fn start(last: u8) -> Self {
        Self::serve(TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), 0)).expect("a listener"))
    }

    fn serve(listener: TcpListener) -> Self {
        let address = v4(listener.local_addr().expect("its address"));
        thread::spawn(move || {
            for client in listener.incoming() {
                // A client that is gone already wants no answer.
                let _ = client.and_then(|mut client| client.write_all(address.to_string().as_bytes()));
            }
        });
        Self { address }
    }
}

/// A UDP server that answers with its own address; ends with the process.
pub(crate) struct UdpServer {
    pub(crate) address: SocketAddrV4,
}

impl UdpServer {
    /// On a port of the kernel's choice, at 127.0.0.`last`.
    pub(crate) fn start(last: u8) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, last), 0)).expect("a socket");
        let address = v4(socket.local_addr().expect("its address"));
        thread::spawn(move || {
            let mut buffer = [0; 64];
            while let Ok((_, client)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(address.to_string().as_bytes(), client);
            }
        });
        Self { address }
    }
}

/// Connects, and returns who answered and what `getpeername` shows.
pub(crate) fn dial(address: SocketAddrV4) -> io::Result<(SocketAddrV4, SocketAddrV4)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    let identity = said
        .parse()
        .map_err(|_| io::Error::other(format!("somebody else answered: {said:?}")))?;
    Ok((identity, v4(stream.peer_addr()?)))
}

/// A client's UDP socket that does not wait for ever.
pub(crate) fn udp_client() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a socket");
    socket.set_read_timeout(Some(LIMIT)).expect("a limit");
    socket
}

/// Receives who answered, and from where it came.
pub(crate) fn receive(socket: &UdpSocket) -> io::Result<(SocketAddrV4, SocketAddrV4)> {
    let mut buffer = [0; 64];
    let (length, source) = socket.recv_from(&mut buffer)?;
    let said = String::from_utf8_lossy(&buffer[..length]);
    let identity = said
        .parse()
        .map_err(|_| io::Error::other(format!("somebody else answered: {said:?}")))?;
    Ok((identity, v4(source)))
}

fn v4(address: SocketAddr) -> SocketAddrV4 {
    match address {
        SocketAddr::V4(address) => address,
        SocketAddr::V6(address) => panic!("an IPv4 socket shows {address}"),
    }
}
