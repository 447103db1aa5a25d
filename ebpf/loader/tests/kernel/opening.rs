//! TCP connections that are being opened are listed and ended; those that are open, or not named, are left alone.

use std::{
    fs::File,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd as _,
};

use lb_loader::{opening, terminate_opening};
use socket2::{Domain, SockRef, Socket, Type};

use crate::support::isolated;

/// A listener that answers no more SYN: its queue is full.
fn silent() -> (Socket, SocketAddr, Vec<TcpStream>) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    listener.bind(&any.into()).expect("bound");
    listener.listen(0).expect("listening");
    let at = listener
        .local_addr()
        .expect("its address")
        .as_socket()
        .expect("an IP address");
    // A queue of 0 takes one.
    let queued = vec![TcpStream::connect(at).expect("the first is taken")];
    (listener, at, queued)
}

fn begin(to: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_nonblocking(true).expect("not blocking");
    let begun = socket.connect(&to.into()).expect_err("no answer so far");
    assert_eq!(begun.raw_os_error(), Some(libc::EINPROGRESS));
    socket
}

#[test]
fn connections_without_an_answer_are_ended_and_open_ones_are_not() {
    isolated(|_| {
        let here = File::open("/proc/thread-self/ns/net").expect("a network namespace");
        let (_listener, backend, queued) = silent();
        let served = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a server");
        let open = TcpStream::connect(served.local_addr().expect("its address")).expect("connected");
        let (ends, stays) = (begin(backend), begin(backend));
        let found = opening(here.as_fd()).expect("listed");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|one| one.peer == backend), "{found:?}");
        let cookie = |socket: &Socket| socket.cookie().expect("a cookie");
        let of_stream = |stream: &TcpStream| SockRef::from(stream).cookie().expect("a cookie");
        let named = [cookie(&ends), of_stream(&open), of_stream(&queued[0])];
        let ended = terminate_opening(here.as_fd(), &named.into()).expect("ended");
        assert_eq!(ended, 1);
        let error = ends.take_error().expect("asked").expect("an error");
        assert_eq!(error.raw_os_error(), Some(libc::ECONNABORTED));
        assert!(stays.take_error().expect("asked").is_none(), "it was not named");
        assert!(open.take_error().expect("asked").is_none(), "it is open");
        let left = opening(here.as_fd()).expect("listed");
        assert_eq!(
            left.iter().map(|one| one.cookie).collect::<Vec<_>>(),
            [cookie(&stays)]
        );
    });
}
