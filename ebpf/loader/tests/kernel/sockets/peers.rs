//! Servers that say who they are, and clients.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::{AsFd as _, AsRawFd as _},
    thread,
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Socket, Type};
use test_network::EnteredNamespace;
use testing::patience::LIMIT;

use super::world::{Family, Protocol};

/// Within this a refusal has come from the hook: the first timer that could be behind it, the retransmission of a
/// TCP SYN, is of a second.
const AT_ONCE: Duration = Duration::from_secs(1);

/// What a client saw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    /// Who answered, by its own word.
    pub(super) server: SocketAddr,
    /// Who that is, by the word of `getpeername` or of the source of the answer.
    pub(super) peer: SocketAddr,
}

/// A server at an address, of port 0: of the kernel's choice. It says its own address to whoever connects or sends,
/// and ends with the process.
pub(super) fn serve(protocol: Protocol, at: SocketAddr) -> SocketAddr {
    match protocol {
        Protocol::Tcp => serve_tcp(&TcpListener::bind(at).expect("a listener")),
        Protocol::Udp => serve_udp(&UdpSocket::bind(at).expect("a socket")),
    }
}

fn serve_tcp(listener: &TcpListener) -> SocketAddr {
    let address = listener.local_addr().expect("its address");
    let listener = listener.try_clone().expect("a descriptor");
    thread::spawn(move || {
        for client in listener.incoming() {
            // A client that is gone already wants no answer.
            let _ = client.and_then(|mut client| client.write_all(address.to_string().as_bytes()));
        }
    });
    address
}

fn serve_udp(socket: &UdpSocket) -> SocketAddr {
    let address = socket.local_addr().expect("its address");
    let socket = socket.try_clone().expect("a descriptor");
    thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((_, client)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(address.to_string().as_bytes(), client);
        }
    });
    address
}

/// A server at loopback, on a port of the kernel's choice; IPv4 for IPv4-mapped clients.
pub(super) fn server(protocol: Protocol, family: Family) -> SocketAddr {
    let family = match family {
        Family::V4 | Family::Mapped => Family::V4,
        Family::V6 => Family::V6,
    };
    serve(protocol, family.loopback(0))
}

/// Asks who is there, and sees who answers: TCP by a connection, UDP by an unconnected socket.
pub(super) fn ask(protocol: Protocol, family: Family, to: SocketAddr) -> io::Result<Seen> {
    match protocol {
        Protocol::Tcp => dial(to),
        Protocol::Udp => {
            let client = udp_client(family);
            client.send_to(b"who", to)?;
            receive(&client)
        }
    }
}

/// Connects by TCP.
pub(super) fn dial(to: SocketAddr) -> io::Result<Seen> {
    hear(&mut TcpStream::connect(to)?)
}

/// Connects by TCP, by a socket that waits for nothing.
pub(super) fn dial_nonblocking(to: SocketAddr) -> io::Result<Seen> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM.nonblocking(), None)?;
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        result => result?,
    }
    let mut ready = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    let count = poll(&mut ready, PollTimeout::try_from(LIMIT).expect("not for ever"))?;
    if count == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    socket.take_error()?.map_or(Ok(()), Err)?;
    socket.set_nonblocking(false)?;
    hear(&mut socket.into())
}

fn hear(stream: &mut TcpStream) -> io::Result<Seen> {
    stream.set_read_timeout(Some(LIMIT))?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(Seen {
        server: identity(&said)?,
        peer: stream.peer_addr()?,
    })
}

/// A client's UDP socket that does not wait for ever.
pub(super) fn udp_client(family: Family) -> UdpSocket {
    let socket = UdpSocket::bind(family.client()).expect("a socket");
    socket.set_read_timeout(Some(LIMIT)).expect("a limit");
    socket
}

/// Receives an answer.
pub(super) fn receive(socket: &UdpSocket) -> io::Result<Seen> {
    let mut buffer = [0; 64];
    let (length, peer) = socket.recv_from(&mut buffer)?;
    let said = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default());
    Ok(Seen {
        server: identity(&said)?,
        peer,
    })
}

/// Who says so.
pub(super) fn identity(said: &str) -> io::Result<SocketAddr> {
    said.parse()
        .map_err(|_| io::Error::other(format!("somebody else answered: {said:?}")))
}

/// Asserts that a call failed with an error of `errno.h`, and that it did not wait for anything.
#[track_caller]
pub(super) fn fails<T: std::fmt::Debug>(errno: i32, call: impl FnOnce() -> io::Result<T>) {
    let begun = Instant::now();
    let result = call();
    let took = begun.elapsed();
    match result {
        Err(error) if error.raw_os_error() == Some(errno) => {}
        other => panic!("expected {}, got {other:?}", io::Error::from_raw_os_error(errno)),
    }
    assert!(took < AT_ONCE, "it failed after {took:?}");
}

/// Asserts that a call failed with ECONNREFUSED at once.
#[track_caller]
pub(super) fn refused<T: std::fmt::Debug>(call: impl FnOnce() -> io::Result<T>) {
    fails(libc::ECONNREFUSED, call);
}

/// Runs in another network namespace, with a loopback device of its own, in the same cgroup.
pub(super) fn elsewhere<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let _entered = EnteredNamespace::enter().expect("a network namespace");
            run()
        });
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A number of eight bytes that the kernel has about a socket.
fn number(socket: &UdpSocket, option: i32) -> u64 {
    let (mut value, mut length) = (0_u64, libc::socklen_t::try_from(size_of::<u64>()).unwrap_or(0));
    // SAFETY: room for eight bytes, as the length says.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    value
}

/// The cookie of a socket.
pub(super) fn cookie(socket: &UdpSocket) -> u64 {
    number(socket, libc::SO_COOKIE)
}

/// The cookie of the calling thread's network namespace.
pub(super) fn netns_cookie() -> u64 {
    number(&udp_client(Family::V4), libc::SO_NETNS_COOKIE)
}
