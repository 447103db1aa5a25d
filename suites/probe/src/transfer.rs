//! Bytes of a transfer on their way over a connection: they are derived from its nonce, so that the receiver checks each.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::wire::octets;

/// Bytes of one write or read.
const CHUNK: usize = 64 << 10;

/// Sends so many bytes of a nonce.
pub(crate) async fn send(to: &mut (impl AsyncWrite + Unpin), nonce: &str, bytes: u32) -> io::Result<()> {
    let mut octets = octets(nonce);
    let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
    while left > 0 {
        let chunk: Vec<u8> = octets.by_ref().take(left.min(CHUNK)).collect();
        to.write_all(&chunk).await?;
        left -= chunk.len();
    }
    to.flush().await
}

/// Receives so many bytes. Returns how many were those of the nonce, up to the first that was not.
pub(crate) async fn receive(from: &mut (impl AsyncRead + Unpin), nonce: &str, bytes: u32) -> io::Result<u32> {
    let mut octets = octets(nonce);
    let mut from = from.take(bytes.into());
    let (mut buffer, mut arrived) = (vec![0; CHUNK], 0);
    loop {
        let read = from.read(&mut buffer).await?;
        for byte in &buffer[..read] {
            if octets.next() != Some(*byte) {
                return Ok(arrived);
            }
            arrived += 1;
        }
        if read == 0 {
            return Ok(arrived);
        }
    }
}
