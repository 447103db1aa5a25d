//! A request as IPv4 fragments, in whatever order: no socket of UDP sends such, so a raw one does, and the UDP socket only waits
//! for the answer.

use std::{
    io,
    net::{IpAddr, SocketAddrV4},
    os::fd::{AsRawFd, OwnedFd},
};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
};
use oracle::history::{Round, Stage, Transport};

use super::{
    attempt::{self, Reply, Trace, Trouble},
    socket::Socket,
};
use crate::wire;

/// Fragments of one datagram, at most: each but the last has eight bytes or more of the smallest request.
const MOST: usize = 4;
/// Between two fragments: where several processors receive, a later one must not overtake.
const BETWEEN: std::time::Duration = std::time::Duration::from_millis(5);
/// Bytes of the header, which has no options (RFC 791).
const HEADER: usize = 20;
/// The unit of offsets in the header (RFC 791).
const UNIT: usize = 8;
const MORE_FRAGMENTS: u16 = 0x2000;
const UDP: u8 = 17;
const UDP_HEADER: usize = 8;

/// Whether the fragments of a round make sense.
pub(super) fn check(round: &Round) -> Result<(), String> {
    if round.fragments.is_empty() {
        return Ok(());
    }
    let mut sorted = round.fragments.clone();
    sorted.sort_unstable();
    let expected = (0..).take(sorted.len());
    if !sorted.into_iter().eq(expected) || !(2..=MOST).contains(&round.fragments.len()) {
        return Err(format!(
            "its fragments are {:?}; expected each of two to {MOST} numbers from 0 on once",
            round.fragments
        ));
    }
    if round.transport != Transport::Udp || !round.address.is_ipv4() {
        return Err("it has fragments; expected them of UDP over IPv4 alone".to_owned());
    }
    Ok(())
}

/// One request in fragments, and its answer on the socket whose port it comes from.
pub(super) async fn exchange(
    socket: &Socket,
    nonce: &str,
    round: &Round,
    trace: &mut Trace,
) -> Result<Reply, Trouble> {
    trace.stage = Stage::Send;
    let (IpAddr::V4(address), Some(local)) = (round.address, trace.local) else {
        return Err(io::Error::from(io::ErrorKind::AddrNotAvailable).into());
    };
    let destination = SocketAddrV4::new(address, round.port);
    let mut request = socket.request(nonce, false);
    // As long as a server takes, so that parts of it are more than a header.
    request.resize(wire::MAX_REQUEST, b' ');
    let identification = rand::random::<u16>().max(1);
    let parts = parts(
        &datagram(local.port(), destination.port(), &request),
        destination,
        identification,
        round.fragments.len(),
    );
    let raw = raw()?;
    for number in &round.fragments {
        let part = &parts[usize::from(*number)];
        sendto(
            raw.as_raw_fd(),
            part,
            &SockaddrIn::from(destination),
            MsgFlags::empty(),
        )
        .map_err(io::Error::from)?;
        tokio::time::sleep(BETWEEN).await;
    }
    attempt::answer(socket, nonce, None, trace).await
}

fn raw() -> io::Result<OwnedFd> {
    // The kernel writes the source address, the length and the checksum of what is sent (raw(7)).
    Ok(socket(
        AddressFamily::Inet,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::Raw,
    )?)
}

/// A UDP datagram without a checksum, which IPv4 permits (RFC 768).
fn datagram(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(UDP_HEADER + payload.len()).unwrap_or(u16::MAX);
    let mut bytes = Vec::with_capacity(UDP_HEADER + payload.len());
    for field in [source, destination, length, 0] {
        bytes.extend(field.to_be_bytes());
    }
    bytes.extend(payload);
    bytes
}

/// The datagram as so many packets, from its first part on.
fn parts(datagram: &[u8], to: SocketAddrV4, identification: u16, count: usize) -> Vec<Vec<u8>> {
    let size = datagram.len().div_ceil(count).next_multiple_of(UNIT);
    let last = datagram.chunks(size).count() - 1;
    let part = |(number, bytes): (usize, &[u8])| {
        let offset = u16::try_from(number * size / UNIT).unwrap_or(u16::MAX);
        let flags = if number < last { MORE_FRAGMENTS } else { 0 };
        let mut packet = vec![0; HEADER];
        packet[0] = 0x45;
        packet[4..6].copy_from_slice(&identification.to_be_bytes());
        packet[6..8].copy_from_slice(&(flags | offset).to_be_bytes());
        packet[8] = 64;
        packet[9] = UDP;
        packet[16..20].copy_from_slice(&to.ip().octets());
        packet.extend(bytes);
        packet
    };
    datagram.chunks(size).enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_datagram() {
        let payload: Vec<u8> = (0..=255).collect();
        let datagram = datagram(7, 8, &payload);
        let to = "192.0.2.1:8".parse().unwrap();
        for count in 2..=MOST {
            let parts = parts(&datagram, to, 5, count);
            assert_eq!(parts.len(), count);
            let mut whole: Vec<u8> = Vec::new();
            for (number, part) in parts.iter().enumerate() {
                let field = u16::from_be_bytes([part[6], part[7]]);
                assert_eq!(
                    usize::from(field & !MORE_FRAGMENTS) * UNIT,
                    whole.len(),
                    "its offset"
                );
                assert_eq!(field & MORE_FRAGMENTS != 0, number + 1 < count);
                whole.extend(&part[HEADER..]);
            }
            assert_eq!(whole, datagram);
        }
    }

    #[test]
    fn fragments_are_each_part_once_of_udp_over_ipv4() {
        let round = |transport, address: &str, fragments: &[u8]| Round {
            target: "t".into(),
            transport,
            address: address.parse().unwrap(),
            port: 1,
            sockets: 1,
            anew: false,
            stay: false,
            source_port: None,
            fragments: fragments.to_vec(),
            limit_ms: 1,
        };
        for good in [&[][..], &[0, 1], &[1, 0], &[2, 0, 1]] {
            assert_eq!(check(&round(Transport::Udp, "127.0.0.1", good)), Ok(()));
        }
        for bad in [&[0][..], &[1, 2], &[0, 0], &[0, 1, 2, 3, 4]] {
            let error = check(&round(Transport::Udp, "127.0.0.1", bad)).unwrap_err();
            assert!(error.contains("expected each"), "{error}");
        }
        for (transport, address) in [
            (Transport::Tcp, "127.0.0.1"),
            (Transport::UdpConnected, "127.0.0.1"),
            (Transport::Udp, "::1"),
        ] {
            let error = check(&round(transport, address, &[1, 0])).unwrap_err();
            assert!(error.contains("UDP over IPv4"), "{error}");
        }
    }
}
