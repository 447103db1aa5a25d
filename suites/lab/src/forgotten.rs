//! For tests of whoever leads connections to one of several nodes: what ends one has to take the way on which it began.

use std::{io, net::SocketAddr, time::Duration};

use nix::sys::socket::{setsockopt, sockopt::TcpRepair};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    time::timeout,
};

use super::NetNs;

/// So many connections: that all take the right way by chance is improbable.
const CONNECTIONS: usize = 20;

/// How long a connection that is led to somebody may take: one lost packet is not what is tested, and a SYN is sent again
/// after 1, 3 and 7 s. One that is led wrongly is so each time, since all of a connection's packets go one way.
pub const LED: Duration = Duration::from_secs(10);

/// What comes of a connection; `None`: nothing for so long, as where nobody is told anything.
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

/// The node that has a connection hears that its client has forgotten it: by a RST, which no socket sends.
///
/// # Panics
/// One does not.
pub async fn expect_ended(client: &NetNs, to: SocketAddr, nodes: [&TcpListener; 2]) {
    for connection in 0..CONNECTIONS {
        let made = connect(client, to, LED).await;
        let made = made.unwrap_or_else(|| panic!("connection {connection} to {to}: nobody answers"));
        let made = made.expect("a connection");
        let accepted = tokio::select! {
            accepted = nodes[0].accept() => accepted,
            accepted = nodes[1].accept() => accepted,
        };
        let (mut accepted, _) = accepted.expect("it");
        // One in repair is forgotten without a word.
        setsockopt(&made, TcpRepair, &1).expect("CAP_NET_ADMIN");
        drop(made);
        accepted.write_all(b"who is there?").await.expect("a request");
        let told = timeout(Duration::from_secs(1), accepted.read(&mut [0])).await;
        let told = told.unwrap_or_else(|_| panic!("connection {connection} to {to}: its node heard nothing"));
        let error = told.expect_err("nobody is there");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}
