//! A transfer over one new connection, as a TCP socket sends it: with path MTU discovery.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use oracle::history::{Attempt, Stage, Transport};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use super::attempt::{About, Trouble, watched};
use crate::{
    stream::{self, Protocol},
    transfer::{receive, send},
    wire,
};

/// What is transferred.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Name for [`Attempt::client`].
    pub client: String,
    /// Label for [`Attempt::target`].
    pub target: String,
    /// What is dialled.
    pub to: SocketAddr,
    /// The own address; none: the kernel chooses.
    pub from: Option<IpAddr>,
    /// Bytes to the server.
    pub upload: u32,
    /// Bytes from the server.
    pub download: u32,
    /// Limit of all.
    pub limit: Duration,
}

/// Makes one. It is answered when the server has received all and logged it, and the client has received all.
pub async fn transfer(wanted: &Transfer) -> Attempt {
    let nonce = format!("{}-{:016x}", wanted.client, rand::random::<u64>());
    let about = About {
        client: &wanted.client,
        target: &wanted.target,
        transport: Transport::Tcp,
        destination: wanted.to,
        limit: wanted.limit,
        nonce: nonce.clone(),
        exchange: None,
    };
    watched(about, async |trace| {
        let socket = stream::socket(Protocol::Tcp, wanted.to)?;
        if let Some(from) = wanted.from {
            socket.bind((from, 0).into())?;
        }
        trace.stage = Stage::Handshake;
        let mut stream = BufReader::new(socket.connect(wanted.to).await?);
        trace.local = Some(stream.get_ref().local_addr()?);
        let peer = stream.get_ref().peer_addr()?;
        trace.stage = Stage::Send;
        let request = wire::transfer(&nonce, wanted.upload, wanted.download);
        stream.get_mut().write_all(&request).await?;
        send(stream.get_mut(), &nonce, wanted.upload).await?;
        trace.stage = Stage::Receive;
        let mut line = Vec::new();
        (&mut stream)
            .take(wire::MAX_ANSWER as u64)
            .read_until(b'\n', &mut line)
            .await?;
        let answer = wire::answer(&line).map_err(Trouble::Garbled)?;
        if answer.nonce != nonce {
            return Err(Trouble::Garbled(wire::beginning(&line)));
        }
        let arrived = receive(&mut stream, &nonce, wanted.download).await?;
        if arrived != wanted.download {
            let said = format!("{arrived} of {} bytes as they were sent", wanted.download);
            return Err(Trouble::Garbled(said));
        }
        Ok((answer, peer))
    })
    .await
}
