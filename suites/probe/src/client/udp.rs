//! One attempt over UDP: one datagram, one reply.

use std::net::SocketAddr;

use oracle::history::{Answer, Stage};
use tokio::net::UdpSocket;

use super::attempt::{Reply, Trace, Trouble, unspecified};
use crate::wire;

/// `sendto` and `recvfrom` on a socket that is never connected.
pub(super) async fn dial(destination: SocketAddr, nonce: &str, trace: &mut Trace) -> Result<Reply, Trouble> {
    let socket = UdpSocket::bind(unspecified(destination)).await?;
    trace.local = Some(socket.local_addr()?);

    trace.stage = Stage::Send;
    socket.send_to(&wire::request(nonce, false), destination).await?;

    trace.stage = Stage::Receive;
    let mut buffer = [0; wire::MAX_ANSWER];
    loop {
        let (length, source) = socket.recv_from(&mut buffer).await?;
        if let Some(answer) = ours(&buffer[..length], nonce)? {
            return Ok((answer, source));
        }
    }
}

/// `connect`, then `send` and `recv`.
pub(super) async fn dial_connected(
    destination: SocketAddr,
    nonce: &str,
    trace: &mut Trace,
) -> Result<Reply, Trouble> {
    let socket = UdpSocket::bind(unspecified(destination)).await?;

    trace.stage = Stage::Connect;
    socket.connect(destination).await?;
    trace.local = Some(socket.local_addr()?);

    trace.stage = Stage::Send;
    socket.send(&wire::request(nonce, false)).await?;

    trace.stage = Stage::Receive;
    let mut buffer = [0; wire::MAX_ANSWER];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if let Some(answer) = ours(&buffer[..length], nonce)? {
            return Ok((answer, socket.peer_addr()?));
        }
    }
}

/// Our answer; nothing for the answer to another nonce, which is a late reply to whoever had this port before.
fn ours(datagram: &[u8], nonce: &str) -> Result<Option<Answer>, Trouble> {
    let answer = wire::answer(datagram).map_err(Trouble::Garbled)?;
    Ok((answer.nonce == nonce).then_some(answer))
}
