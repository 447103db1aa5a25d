//! Connections over TCP, and one attempt: a new one.

use std::{
    future::{Future as _, poll_fn},
    io,
    net::SocketAddr,
    pin::pin,
    task::Poll,
};

use oracle::history::Stage;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpSocket, TcpStream},
};

use super::attempt::{Reply, Trace, Trouble};
use crate::wire;

/// `connect`, with what decides it in the trace.
pub(super) async fn connect(destination: SocketAddr, trace: &mut Trace) -> io::Result<TcpStream> {
    let socket = if destination.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };

    trace.stage = Stage::Connect;
    let mut connecting = pin!(socket.connect(destination));
    // What the first poll does not decide is decided by a packet.
    let at_once = poll_fn(|context| Poll::Ready(connecting.as_mut().poll(context))).await;
    let stream = match at_once {
        Poll::Ready(connected) => connected?,
        Poll::Pending => {
            trace.stage = Stage::Handshake;
            connecting.await?
        }
    };
    trace.local = Some(stream.local_addr()?);
    Ok(stream)
}

pub(super) async fn dial(destination: SocketAddr, nonce: &str, trace: &mut Trace) -> Result<Reply, Trouble> {
    let mut stream = connect(destination, trace).await?;

    trace.stage = Stage::Send;
    stream.write_all(&wire::request(nonce, false)).await?;

    trace.stage = Stage::Receive;
    let mut line = Vec::new();
    let mut stream = BufReader::new(stream);
    (&mut stream)
        .take(wire::MAX_ANSWER as u64)
        .read_until(b'\n', &mut line)
        .await?;
    let answer = wire::answer(&line).map_err(Trouble::Garbled)?;
    if answer.nonce != nonce {
        // Somebody else's answer on our connection.
        return Err(Trouble::Garbled(wire::said(&line)));
    }
    Ok((answer, stream.get_ref().peer_addr()?))
}
