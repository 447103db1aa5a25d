//! For tests of routers that choose one of several nodes: packets that end a connection must take the route on which
//! the connection began.

use std::{io, net::SocketAddr, time::Duration};

use nix::sys::socket::{setsockopt, sockopt::TcpRepair};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    time::timeout,
};

use super::NetNs;

/// Number of connections: it is improbable that all take the right route by chance.
const CONNECTIONS: usize = 20;

/// Limit of one connection attempt. One lost packet is not a failure, and a SYN is sent again after 1, 3 and 7 s; a
/// wrong route fails every time, since all packets of a connection take one route.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Result of a connection attempt; `None`: no response in this time, as from a blackhole.
pub async fn connect(client: &NetNs, to: SocketAddr, within: Duration) -> Option<io::Result<TcpStream>> {
    let runtime = tokio::runtime::Handle::current();
    let socket = client.inside(|| {
        let _reactor = runtime.enter();
        match to {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }
    });
    let connecting = socket.expect("a socket").connect(to);
    timeout(within, connecting).await.ok()
}

/// Expects that the node of a connection gets a RST after the client has lost its socket: a RST that no socket sends.
///
/// # Panics
/// A node gets none.
pub async fn expect_ended(client: &NetNs, to: SocketAddr, nodes: [&TcpListener; 2]) {
    for connection in 0..CONNECTIONS {
        let made = connect(client, to, CONNECT_LIMIT).await;
        let made = made.unwrap_or_else(|| panic!("connection {connection} to {to}: no response"));
        let made = made.expect("a connection");
        let accepted = tokio::select! {
            accepted = nodes[0].accept() => accepted,
            accepted = nodes[1].accept() => accepted,
        };
        let (mut accepted, _) = accepted.expect("it");
        // Closing a socket in repair mode sends nothing.
        setsockopt(&made, TcpRepair, &1).expect("CAP_NET_ADMIN");
        drop(made);
        accepted.write_all(b"request").await.expect("a request");
        let received = timeout(Duration::from_secs(1), accepted.read(&mut [0])).await;
        let received =
            received.unwrap_or_else(|_| panic!("connection {connection} to {to}: its node received nothing"));
        let error = received.expect_err("an error");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}
