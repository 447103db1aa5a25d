//! Packets on the device that has an address, from and to some others, as a packet socket shows them.

use std::{
    ffi::c_int,
    io::{self, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsFd as _,
};

use nix::{
    errno::Errno,
    ifaddrs::getifaddrs,
    net::if_::if_nametoindex,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    unistd::read,
};
use oracle::crossings::{ICMP, Packet};

use super::Ring;
use crate::clock;

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// Writes packets from and to these addresses, on the device that has the first address, as JSON lines until stdin
/// ends. A line without a packet says that it has begun.
///
/// # Errors
/// No device has the address, packets can't be watched (CAP_NET_RAW), or the output can't be written.
pub fn capture(device_of: IpAddr, addresses: &[IpAddr], mut out: impl Write) -> io::Result<()> {
    let device = device(device_of)?;
    let mut ring = Ring::open()?;
    writeln!(out)?;
    out.flush()?;
    let stdin = io::stdin();
    loop {
        let mut both = [
            PollFd::new(ring.as_fd(), PollFlags::POLLIN),
            PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut both, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let may_have_ended = both[1].any().unwrap_or(true);
        // What was not seen is no violation.
        for seen in ring.by_ref().filter(|seen| seen.device == device) {
            let packet = parse(&seen.bytes, seen.is_sent);
            if let Some(packet) = packet.filter(|packet| is_of(packet, addresses)) {
                serde_json::to_writer(&mut out, &packet)?;
                writeln!(out)?;
            }
        }
        out.flush()?;
        if may_have_ended && read(&stdin, &mut [0; 64]).map_or(true, |length| length == 0) {
            return Ok(());
        }
    }
}

/// Index of the device that has an address.
fn device(address: IpAddr) -> io::Result<c_int> {
    let of = |one: &nix::ifaddrs::InterfaceAddress| {
        let one = one.address.as_ref()?;
        let v4 = one.as_sockaddr_in().map(|one| IpAddr::V4(one.ip()));
        v4.or(one.as_sockaddr_in6().map(|one| IpAddr::V6(one.ip())))
    };
    let found = getifaddrs()?.find(|one| of(one) == Some(address));
    let none = || {
        io::Error::other(format!(
            "expected a device with the address {address}, found none"
        ))
    };
    let index = if_nametoindex(found.ok_or_else(none)?.interface_name.as_str())?;
    c_int::try_from(index).map_err(io::Error::other)
}

/// Whether a packet is from or to one of these, or about one that is.
fn is_of(packet: &Packet, addresses: &[IpAddr]) -> bool {
    let ends = [packet.source, packet.destination].into_iter();
    ends.chain(packet.about.into_iter().flatten())
        .any(|address| addresses.contains(&address))
}

fn parse(bytes: &[u8], is_sent: bool) -> Option<Packet> {
    let Headers {
        ends: [source, destination],
        protocol,
        bytes: all,
        hops,
        payload,
    } = headers(bytes)?;
    let number = |at: usize| Some(u16::from_be_bytes(*payload.get(at..)?.first_chunk()?));
    let is_icmp = ICMP.contains(&protocol);
    let icmp_type = payload.first().copied().filter(|_| is_icmp);
    let icmp_code = payload.get(1).copied().filter(|_| is_icmp);
    // RFC 792, RFC 4443: errors have the packet after eight bytes.
    let is_error = icmp_type.is_some_and(|kind| match protocol {
        1 => matches!(kind, 3 | 4 | 5 | 11 | 12),
        _ => kind < 128,
    });
    let about = if is_error {
        headers(payload.get(8..)?).map(|of| of.ends)
    } else {
        None
    };
    let ports = match protocol {
        TCP | UDP | SCTP => number(0).zip(number(2)).map(|(from, to)| [from, to]),
        _ if is_icmp && !is_error => number(4).zip(number(6)).map(|(from, to)| [from, to]),
        _ => None,
    };
    Some(Packet {
        time_us: clock::now_us(),
        is_sent,
        source,
        destination,
        protocol,
        bytes: all,
        hops,
        ports,
        icmp_type,
        icmp_code,
        about,
    })
}

struct Headers<'a> {
    ends: [IpAddr; 2],
    protocol: u8,
    /// As the header says.
    bytes: u32,
    hops: u8,
    payload: &'a [u8],
}

/// The IP header (RFC 791, RFC 8200); packets with extension headers are of the protocol of the first of them.
fn headers(bytes: &[u8]) -> Option<Headers<'_>> {
    if bytes.first()? >> 4 == 4 {
        let header = bytes.first_chunk::<20>()?;
        let address = |at: usize| Some(IpAddr::from(Ipv4Addr::from(*header[at..].first_chunk::<4>()?)));
        return Some(Headers {
            ends: [address(12)?, address(16)?],
            protocol: header[9],
            bytes: u16::from_be_bytes([header[2], header[3]]).into(),
            hops: header[8],
            payload: bytes.get(usize::from(header[0] & 0xf) * 4..)?,
        });
    }
    let (header, payload) = bytes.split_first_chunk::<40>()?;
    let address = |at: usize| Some(IpAddr::from(Ipv6Addr::from(*header[at..].first_chunk::<16>()?)));
    Some(Headers {
        ends: [address(8)?, address(24)?],
        protocol: header[6],
        bytes: u32::from(u16::from_be_bytes([header[4], header[5]])) + 40,
        hops: header[7],
        payload,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 header without options, and a payload.
    fn v4(protocol: u8, hops: u8, ends: [u8; 2], payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, hops, protocol, 0, 0];
        packet.extend(ends.map(|end| [10, 0, 0, end]).concat());
        packet.extend(payload);
        packet
    }

    #[test]
    fn a_packet_has_its_ends_its_ports_and_its_hops() {
        let packet = parse(&v4(UDP, 63, [1, 2], &[0, 7, 1, 0, 0, 8]), true).unwrap();
        assert_eq!(
            (packet.is_sent, packet.hops, packet.ports),
            (true, 63, Some([7, 256]))
        );
        assert_eq!(packet.destination, IpAddr::from([10, 0, 0, 2]));
        let mut v6 = vec![0x60, 0, 0, 0, 0, 8, TCP, 5];
        v6.extend([1; 16]);
        v6.extend([2; 16]);
        v6.extend([0, 1, 0, 2]);
        let packet = parse(&v6, false).unwrap();
        assert_eq!(
            (packet.protocol, packet.bytes, packet.hops, packet.ports),
            (TCP, 48, 5, Some([1, 2]))
        );
        assert_eq!(packet.source, IpAddr::from([1; 16]));
        assert_eq!(parse(&[0x45, 0], false), None);
    }

    #[test]
    fn an_icmp_error_says_which_packet_it_is_about_and_an_echo_has_an_identifier() {
        let about = v4(UDP, 1, [1, 2], &[0, 7, 1, 0]);
        let expired = [vec![11, 1, 0, 0, 0, 0, 0, 0], about].concat();
        let packet = parse(&v4(1, 64, [9, 1], &expired), false).unwrap();
        let ends = [1, 2].map(|end| IpAddr::from([10, 0, 0, end]));
        assert_eq!(
            (packet.icmp_type, packet.icmp_code, packet.about, packet.ports),
            (Some(11), Some(1), Some(ends), None)
        );
        assert!(is_of(&packet, &[ends[1]]) && !is_of(&packet, &[IpAddr::from([10, 0, 0, 3])]));
        let packet = parse(&v4(1, 64, [1, 2], &[8, 0, 0, 0, 0, 5, 0, 6]), false).unwrap();
        assert_eq!(
            (packet.icmp_type, packet.about, packet.ports),
            (Some(8), None, Some([5, 6]))
        );
    }
}
