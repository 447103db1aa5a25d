//! Packets that are sent as they are: no socket program translates what a raw socket sends.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd as _,
};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, connect, getsockname,
    send as send_bytes, socket,
};

const HOPS: u8 = 64;
/// For experiments (RFC 3692): nothing speaks it.
const UNKNOWN: u8 = 253;

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sent {
    /// An ICMP echo request.
    Echo,
    /// A packet of protocol 253.
    UnknownProtocol,
}

/// Sends so many packets to an address.
///
/// # Errors
/// Of the system calls: CAP_NET_RAW is needed, and a route.
pub fn send(to: IpAddr, what: Sent, count: u16) -> io::Result<()> {
    let family = match to {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw)?;
    connect(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(to, 0)))?;
    let own: SockaddrStorage = getsockname(socket.as_raw_fd())?;
    let v4 = own.as_sockaddr_in().map(|own| IpAddr::V4(own.ip()));
    let v6 = own.as_sockaddr_in6().map(|own| IpAddr::V6(own.ip()));
    let source = v4.or(v6).ok_or(io::ErrorKind::AddrNotAvailable)?;
    let identifier = rand::random();
    for sequence in 0..count {
        let packet = packet([source, to], what, [identifier, sequence]);
        send_bytes(socket.as_raw_fd(), &packet, MsgFlags::empty())?;
    }
    Ok(())
}

/// With IPv4 the kernel sets length and checksum of the header (raw(7)), with IPv6 nothing.
fn packet(ends: [IpAddr; 2], what: Sent, numbers: [u16; 2]) -> Vec<u8> {
    let addresses = ends.map(octets).concat();
    let protocol = match (what, ends[1]) {
        (Sent::UnknownProtocol, _) => UNKNOWN,
        (Sent::Echo, IpAddr::V4(_)) => 1,
        (Sent::Echo, IpAddr::V6(_)) => 58,
    };
    let request = if ends[1].is_ipv4() { 8 } else { 128 };
    let mut payload = vec![request, 0, 0, 0];
    payload.extend(numbers.map(u16::to_be_bytes).concat());
    // ICMPv6 sums its addresses, length and number, too (RFC 4443).
    let length = [0, 8];
    let pseudo = if ends[1].is_ipv4() {
        Vec::new()
    } else {
        [addresses.clone(), length.to_vec(), vec![0, protocol]].concat()
    };
    let checksum = !sum(&[pseudo, payload.clone()].concat());
    payload[2..4].copy_from_slice(&checksum.to_be_bytes());
    let mut packet = if ends[1].is_ipv4() {
        vec![0x45, 0, 0, 28, 0, 0, 0, 0, HOPS, protocol, 0, 0]
    } else {
        vec![0x60, 0, 0, 0, length[0], length[1], protocol, HOPS]
    };
    packet.extend(addresses);
    packet.extend(payload);
    packet
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The sum of 16-bit words in one's complement (RFC 1071); of an even number of bytes.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum > u32::from(u16::MAX) {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_request_has_a_right_checksum() {
        let v4 = ["10.0.0.1", "10.0.0.2"].map(|end| end.parse().unwrap());
        let of_v4 = packet(v4, Sent::Echo, [7, 1]);
        assert_eq!((of_v4[9], of_v4[20], of_v4.len()), (1, 8, 28));
        assert_eq!(sum(&of_v4[20..]), u16::MAX);
        let v6 = ["fd00::1", "fd00::2"].map(|end| end.parse().unwrap());
        let of_v6 = packet(v6, Sent::Echo, [7, 1]);
        assert_eq!((of_v6[6], of_v6[40], of_v6.len()), (58, 128, 48));
        let pseudo = [of_v6[8..40].to_vec(), vec![0, 8, 0, 58]].concat();
        assert_eq!(sum(&[pseudo, of_v6[40..].to_vec()].concat()), u16::MAX);
        assert_eq!(packet(v6, Sent::UnknownProtocol, [7, 1])[6], UNKNOWN);
    }
}
