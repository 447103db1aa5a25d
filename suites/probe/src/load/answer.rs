//! The server of load: it answers each request with its name, and counts nothing.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::Arc,
    thread,
    time::Duration,
};

use super::{BLOCK, MESSAGE, Work};

/// Longest name: an answer has it with a zero after it.
pub const LONGEST_NAME: usize = MESSAGE - 1;
/// Pause after a failed accept, nearly always because no file descriptor is left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// A client that sends nothing for so long has gone: the connection is ended.
const SILENCE: Duration = Duration::from_secs(10);

/// A server that listens.
#[derive(Debug)]
pub struct Answering {
    connections: TcpListener,
    requests: TcpListener,
    streams: TcpListener,
    datagrams: UdpSocket,
    answer: [u8; MESSAGE],
}

impl Answering {
    /// Listens on a port and the two after it: one connection for a request; requests on a connection; streams. Datagrams on the
    /// first. Port 0: on three that are free.
    ///
    /// # Errors
    /// The name is too long, or a port is taken.
    pub fn bind(name: &str, address: IpAddr, port: u16) -> io::Result<Self> {
        let mut answer = [0; MESSAGE];
        let part = answer
            .get_mut(..name.len())
            .filter(|_| name.len() <= LONGEST_NAME);
        part.ok_or_else(|| io::Error::other(format!("the name is longer than {LONGEST_NAME} bytes")))?
            .copy_from_slice(name.as_bytes());
        /// So many ports are tried.
        const TRIES: usize = 100;
        let at = |port: u16, work: Work| SocketAddr::new(address, port.saturating_add(work.offset()));
        let all = |port: u16| -> io::Result<Self> {
            let connections = TcpListener::bind(at(port, Work::Connect))?;
            let port = connections.local_addr()?.port();
            Ok(Self {
                requests: TcpListener::bind(at(port, Work::Request))?,
                streams: TcpListener::bind(at(port, Work::Stream))?,
                datagrams: UdpSocket::bind(at(port, Work::UdpFlow))?,
                connections,
                answer,
            })
        };
        let mut bound = all(port);
        for _ in 0..TRIES {
            if port != 0 || bound.is_ok() {
                break;
            }
            bound = all(port);
        }
        bound
    }

    /// The first port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.connections.local_addr().map_or(0, |address| address.port())
    }

    /// Serves in threads that end with the process: so many for connections of one request, and as many for datagrams.
    pub fn start(self, threads: usize) {
        let Self {
            connections,
            requests,
            streams,
            datagrams,
            answer,
        } = self;
        let (connections, datagrams) = (Arc::new(connections), Arc::new(datagrams));
        for _ in 0..threads {
            let (connections, datagrams) = (Arc::clone(&connections), Arc::clone(&datagrams));
            // One after the other: a thread for each would cost more than the connection.
            thread::spawn(move || {
                accept(&connections, |mut stream| {
                    // Its client counts what has failed.
                    let _ = one(&mut stream, &answer);
                });
            });
            thread::spawn(move || {
                let mut request = [0; MESSAGE];
                loop {
                    if let Ok((_, from)) = datagrams.recv_from(&mut request) {
                        let _ = datagrams.send_to(&answer, from);
                    }
                }
            });
        }
        thread::spawn(move || {
            accept(&requests, |mut stream| {
                thread::spawn(move || while one(&mut stream, &answer).is_ok() {});
            });
        });
        thread::spawn(move || {
            accept(&streams, |mut stream| {
                thread::spawn(move || {
                    let mut block = vec![0; BLOCK];
                    while stream.read(&mut block).is_ok_and(|bytes| bytes > 0) {}
                });
            });
        });
    }
}

fn accept(listener: &TcpListener, mut serve: impl FnMut(TcpStream)) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let prepared = stream
                    .set_nodelay(true)
                    .and_then(|()| stream.set_read_timeout(Some(SILENCE)));
                if prepared.is_ok() {
                    serve(stream);
                }
            }
            Err(_) => thread::sleep(ACCEPT_AGAIN),
        }
    }
}

fn one(stream: &mut TcpStream, answer: &[u8; MESSAGE]) -> io::Result<()> {
    stream.read_exact(&mut [0; MESSAGE])?;
    stream.write_all(answer)
}
