//! Reads an agent's readiness endpoint.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use cluster::target::program::Ready;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
};

use super::netns::NetNs;

/// Whether an agent is ready; an error if it does not answer.
pub async fn ready(net: &NetNs, Ready { port, path }: &Ready) -> io::Result<bool> {
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), *port);
    let socket = net.inside(TcpSocket::new_v4)?;
    let mut stream = socket.connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    stream.take(64).read_to_end(&mut head).await?;
    parse(&head).ok_or_else(|| io::Error::other("this is no HTTP"))
}

/// Whether an HTTP response has status 200; `None` if it is not HTTP.
fn parse(head: &[u8]) -> Option<bool> {
    let head = str::from_utf8(head).ok()?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    status
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(status == "200")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_is_status_200() {
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain"), Some(true));
        assert_eq!(parse(b"HTTP/1.1 503 Service Unavailable\r\n"), Some(false));
        assert_eq!(parse(b"SSH-2.0-OpenSSH_9.2"), None);
        assert_eq!(parse(b""), None);
    }
}
