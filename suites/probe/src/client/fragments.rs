//! Requests of a given size, and requests as fragments in any order. A UDP socket cannot send these, so a raw socket
//! does, and the UDP socket only waits for the answer. No socket program translates what a raw socket sends.

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsRawFd, OwnedFd},
};

use nix::{
    libc,
    sys::socket::{
        AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, connect, getsockname,
        send, socket,
    },
};
use oracle::history::{Round, Stage, Transport};
use tokio::sync::Semaphore;

use super::{
    attempt::{self, Reply, Trace, Trouble},
    socket::Socket,
};
use crate::{socket_options, wire};

/// Fragments of one datagram, at most: each but the last has eight bytes or more of the smallest request.
const MOST: usize = 4;
/// Datagrams whose fragments are sent concurrently. Between two fragments of one, the kernel that reassembles them
/// permits at most 64 of other datagrams of the same source, over IPv4 (ip-sysctl: `ipfrag_max_dist`).
const AT_ONCE: usize = 8;
/// Permits for them; exchanges that only wait for answers need none.
static SENDING: Semaphore = Semaphore::const_new(AT_ONCE);
/// Interval of two fragments: with several processors at the receiver, a later one must not overtake.
const BETWEEN: std::time::Duration = std::time::Duration::from_millis(5);
/// The unit of offsets in the header (RFC 791, RFC 8200).
const UNIT: usize = 8;
const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
/// Next header of a fragment, and its length (RFC 8200).
const FRAGMENT: u8 = 44;
const FRAGMENT_HEADER: usize = 8;

/// Checks fragments, size and watch of a round.
pub(super) fn check(round: &Round) -> Result<(), String> {
    let Round {
        fragments,
        bytes,
        watched,
        transport,
        ..
    } = round;
    let mut sorted = fragments.clone();
    sorted.sort_unstable();
    let expected = (0..).take(sorted.len());
    let count = if fragments.is_empty() { 2 } else { fragments.len() };
    if !sorted.into_iter().eq(expected) || !(2..=MOST).contains(&count) {
        return Err(format!(
            "its fragments are {fragments:?}; expected each of two to {MOST} numbers from 0 on once"
        ));
    }
    let sizes = wire::MAX_ANSWER..=wire::MAX_DATAGRAM;
    if *bytes != 0 && !sizes.contains(&usize::from(*bytes)) {
        return Err(format!(
            "it has {bytes} bytes; expected {} to {}, or 0",
            sizes.start(),
            sizes.end()
        ));
    }
    if !fragments.is_empty() && *transport != Transport::Udp {
        return Err("it has fragments; expected them of UDP alone".to_owned());
    }
    if (*bytes != 0 || *watched) && !matches!(transport, Transport::Udp | Transport::UdpConnected) {
        return Err("it has bytes, or is watched; expected that of UDP and UDP-CONNECTED alone".to_owned());
    }
    Ok(())
}

/// One request of the round's size, in fragments if the round has any, and its answer on the socket with its source
/// port.
pub(super) async fn exchange(
    socket: &Socket,
    nonce: &str,
    round: &Round,
    trace: &mut Trace,
) -> Result<Reply, Trouble> {
    trace.stage = Stage::Send;
    let mut request = wire::datagram(nonce, round.bytes);
    if round.fragments.is_empty() {
        let mut unsent = VecDeque::from([request]);
        while !unsent.is_empty() {
            socket.send(&mut unsent).await?;
        }
    } else {
        if round.bytes == 0 {
            // Each fragment must hold more than a header.
            request.resize(wire::MAX_REQUEST, b' ');
        }
        let port = trace.local.map_or(0, |local| local.port());
        send_in_parts(&request, port, round).await?;
    }
    attempt::answer(socket, nonce, round.bytes, None, trace).await
}

async fn send_in_parts(request: &[u8], port: u16, round: &Round) -> io::Result<()> {
    let (raw, source) = raw(round.address)?;
    let destination = SocketAddr::new(round.address, round.port);
    let parts = parts(
        &datagram(SocketAddr::new(source, port), destination, request),
        [source, destination.ip()],
        u32::from(rand::random::<u16>().max(1)),
        round.fragments.len(),
    );
    let _sending = SENDING.acquire().await.map_err(io::Error::other)?;
    for number in &round.fragments {
        let part = &parts[usize::from(*number)];
        send(raw.as_raw_fd(), part, MsgFlags::empty())?;
        tokio::time::sleep(BETWEEN).await;
    }
    Ok(())
}

/// A socket that sends packets with their headers to an address, and their source address.
fn raw(to: IpAddr) -> io::Result<(OwnedFd, IpAddr)> {
    let family = match to {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    // With IPv4 the kernel sets length and checksum of the header (raw(7)), with IPv6 nothing.
    let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw)?;
    if to.is_ipv4() {
        // Where a client's own network tracks connections, as that of a container of Docker's does for its name server, its
        // fragments would be put together, and leave in order. IPv6 has no such option.
        socket_options::set(&socket, libc::IPPROTO_IP, libc::IP_NODEFRAG, &1)?;
    }
    connect(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(to, 0)))?;
    let own: SockaddrStorage = getsockname(socket.as_raw_fd())?;
    let v4 = own.as_sockaddr_in().map(|own| IpAddr::V4(own.ip()));
    let v6 = own.as_sockaddr_in6().map(|own| IpAddr::V6(own.ip()));
    let source = v4.or(v6).ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok((socket, source))
}

/// A UDP datagram with its checksum (RFC 768, RFC 8200).
pub(super) fn datagram(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(UDP_HEADER + payload.len()).unwrap_or(u16::MAX);
    let mut bytes = Vec::with_capacity(UDP_HEADER + payload.len());
    for field in [source.port(), destination.port(), length, 0] {
        bytes.extend(field.to_be_bytes());
    }
    bytes.extend(payload);
    let mut summed = [octets(source.ip()), octets(destination.ip())].concat();
    summed.extend([length.to_be_bytes(), [0, UDP]].concat());
    summed.extend(&bytes);
    let checksum = match !sum(&summed) {
        0 => u16::MAX,
        other => other,
    };
    bytes[6..8].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The sum of 16-bit words in one's complement (RFC 1071).
fn sum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    let mut sum: u64 = bytes.chunks(2).map(word).sum();
    while sum > u64::from(u16::MAX) {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}

/// The datagram as fragments between two addresses, from its first part on.
pub(super) fn parts(datagram: &[u8], ends: [IpAddr; 2], identification: u32, count: usize) -> Vec<Vec<u8>> {
    let size = datagram.len().div_ceil(count).next_multiple_of(UNIT);
    let last = datagram.chunks(size).count() - 1;
    let part = |(number, bytes): (usize, &[u8])| {
        let offset = u16::try_from(number * size).unwrap_or(u16::MAX);
        let mut packet = header(ends, identification, offset, number < last, bytes.len());
        packet.extend(bytes);
        packet
    };
    datagram.chunks(size).enumerate().map(part).collect()
}

/// The header of a fragment at an offset in bytes; with IPv4 without options, and with the checksum 0.
fn header(
    [source, destination]: [IpAddr; 2],
    identification: u32,
    offset: u16,
    more: bool,
    length: usize,
) -> Vec<u8> {
    const HOPS: u8 = 64;
    let length = |header: usize| u16::try_from(header + length).unwrap_or(u16::MAX).to_be_bytes();
    let mut packet;
    if source.is_ipv4() {
        let [a, b] = length(20);
        let [_, _, c, d] = identification.to_be_bytes();
        let [e, f] = ((offset / 8) | if more { 0x2000 } else { 0 }).to_be_bytes();
        packet = vec![0x45, 0, a, b, c, d, e, f, HOPS, UDP, 0, 0];
        packet.extend([octets(source), octets(destination)].concat());
    } else {
        let [a, b] = length(FRAGMENT_HEADER);
        packet = vec![0x60, 0, 0, 0, a, b, FRAGMENT, HOPS];
        packet.extend([octets(source), octets(destination)].concat());
        packet.extend([UDP, 0]);
        packet.extend((offset | u16::from(more)).to_be_bytes());
        packet.extend(identification.to_be_bytes());
    }
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_datagram_whose_checksum_is_right() {
        for [source, destination] in [
            ["192.0.2.2:7", "192.0.2.1:8"],
            ["[2001:db8::2]:7", "[2001:db8::1]:8"],
        ] {
            let [source, destination]: [SocketAddr; 2] =
                [source, destination].map(|one| one.parse().unwrap());
            let payload: Vec<u8> = (0..=254).collect();
            let datagram = datagram(source, destination, &payload);
            let length = u16::try_from(datagram.len()).unwrap().to_be_bytes();
            let pseudo = [
                octets(source.ip()),
                octets(destination.ip()),
                length.to_vec(),
                vec![0, UDP],
            ];
            assert_eq!(sum(&[pseudo.concat(), datagram.clone()].concat()), u16::MAX);
            let header = if source.is_ipv4() { 20 } else { 48 };
            for count in 2..=MOST {
                let parts = parts(&datagram, [source.ip(), destination.ip()], 5, count);
                assert_eq!(parts.len(), count);
                let mut whole: Vec<u8> = Vec::new();
                for (number, part) in parts.iter().enumerate() {
                    let (offset, more) = if source.is_ipv4() {
                        let field = u16::from_be_bytes([part[6], part[7]]);
                        (field & 0x1fff, field & 0x2000 != 0)
                    } else {
                        let field = u16::from_be_bytes([part[42], part[43]]);
                        (field >> 3, field & 1 != 0)
                    };
                    assert_eq!(usize::from(offset) * UNIT, whole.len(), "its offset");
                    assert_eq!(more, number + 1 < count);
                    whole.extend(&part[header..]);
                }
                assert_eq!(whole, datagram);
            }
        }
    }

    fn round(transport: Transport, fragments: &[u8], bytes: u16) -> Round {
        Round {
            target: "t".into(),
            transport,
            address: "::1".parse().unwrap(),
            port: 1,
            sockets: 1,
            anew: false,
            stay: false,
            source_port: None,
            fragments: fragments.to_vec(),
            bytes,
            watched: false,
            limit_ms: 1,
        }
    }

    #[test]
    fn fragments_are_each_part_once_of_udp_that_is_not_connected() {
        for good in [&[][..], &[0, 1], &[1, 0], &[2, 0, 1]] {
            assert_eq!(check(&round(Transport::Udp, good, 0)), Ok(()));
        }
        for bad in [&[0][..], &[1, 2], &[0, 0], &[0, 1, 2, 3, 4]] {
            let error = check(&round(Transport::Udp, bad, 0)).unwrap_err();
            assert!(error.contains("expected each"), "{error}");
        }
        for transport in [Transport::Tcp, Transport::UdpConnected] {
            let error = check(&round(transport, &[1, 0], 0)).unwrap_err();
            assert!(error.contains("of UDP alone"), "{error}");
        }
    }

    #[test]
    fn datagrams_of_a_size_hold_an_answer_and_no_more_than_is_read() {
        for good in [0, 1024, 4000, 4096] {
            assert_eq!(check(&round(Transport::UdpConnected, &[], good)), Ok(()));
        }
        for bad in [1, 1023, 4097] {
            let error = check(&round(Transport::Udp, &[], bad)).unwrap_err();
            assert!(error.contains("expected 1024 to 4096"), "{error}");
        }
        let watched = Round {
            watched: true,
            ..round(Transport::Tcp, &[], 0)
        };
        for bad in [round(Transport::Tcp, &[], 4000), watched] {
            assert!(
                check(&bad)
                    .unwrap_err()
                    .contains("of UDP and UDP-CONNECTED alone")
            );
        }
    }
}
