//! Section 6: addresses, ports, and checksums by difference.

use lb_abi::{Address, SCTP, TCP, Tuple, UDP};

use super::{Frame, checksum};

/// A packet's bytes with another tuple. `observed`: of a checksum's two zeros, the one that was taken.
pub(super) fn packet(bytes: &[u8], frame: &Frame, to: &Tuple, observed: &[u8]) -> Vec<u8> {
    let mut new = bytes.to_vec();
    addresses(&mut new, frame, to.source, to.destination);
    if !frame.later() {
        ports(&mut new, frame, to);
        match frame.protocol {
            SCTP => sctp(bytes, &mut new, frame),
            _ => transport(bytes, &mut new, frame, frame, observed),
        }
    }
    if frame.v4 {
        header(bytes, &mut new, frame, observed);
    }
    new
}

pub(super) fn addresses(bytes: &mut [u8], frame: &Frame, source: Address, destination: Address) {
    if frame.v4 {
        bytes[frame.ip + 12..frame.ip + 16].copy_from_slice(&source.last4());
        bytes[frame.ip + 16..frame.ip + 20].copy_from_slice(&destination.last4());
    } else {
        bytes[frame.ip + 8..frame.ip + 24].copy_from_slice(&source.octets());
        bytes[frame.ip + 24..frame.ip + 40].copy_from_slice(&destination.octets());
    }
}

pub(super) fn ports(bytes: &mut [u8], frame: &Frame, to: &Tuple) {
    bytes[frame.payload..frame.payload + 2].copy_from_slice(&to.source_port.0);
    bytes[frame.payload + 2..frame.payload + 4].copy_from_slice(&to.destination_port.0);
}

/// The IPv4 header's checksum, after anything else in the header.
pub(super) fn header(old: &[u8], new: &mut [u8], frame: &Frame, observed: &[u8]) {
    let at = frame.ip + 10;
    let checksum = difference(old, new, at, &[(frame.ip, at), (at + 2, frame.payload)]);
    put(new, at, checksum, observed);
}

/// The checksum of TCP or UDP, after addresses and ports. `whole`: what has the bytes, of which `frame` may be quoted.
pub(super) fn transport(old: &[u8], new: &mut [u8], frame: &Frame, whole: &Frame, observed: &[u8]) {
    let at = frame.payload + if frame.protocol == TCP { 16 } else { 6 };
    if at + 2 > frame.end.min(whole.end) || !matches!(frame.protocol, TCP | UDP) {
        return;
    }
    let none = old[at..at + 2] == [0, 0];
    if frame.protocol == UDP && none {
        return;
    }
    let pseudo = if frame.v4 { 12..20 } else { 8..40 };
    let pseudo = (frame.ip + pseudo.start, frame.ip + pseudo.end);
    let checksum = difference(old, new, at, &[pseudo, (frame.payload, frame.payload + 4)]);
    if frame.protocol == UDP {
        let sent = if checksum == 0 { 0xffff } else { checksum };
        new[at..at + 2].copy_from_slice(&sent.to_be_bytes());
    } else {
        put(new, at, checksum, observed);
    }
}

/// What the checksum at `at` becomes when these ranges have changed.
pub(super) fn difference(old: &[u8], new: &[u8], at: usize, ranges: &[(usize, usize)]) -> u16 {
    let checksum = u16::from_be_bytes([old[at], old[at + 1]]);
    ranges.iter().fold(checksum, |checksum, (from, to)| {
        if old[*from..*to] == new[*from..*to] {
            checksum
        } else {
            checksum::changed(checksum, &old[*from..*to], &new[*from..*to])
        }
    })
}

/// Writes a checksum; 0 and 0xffff are the same number in ones' complement, and where they mean the same, either may be
/// written.
pub(super) fn put(new: &mut [u8], at: usize, checksum: u16, observed: &[u8]) {
    let mut sent = checksum.to_be_bytes();
    if let (0 | 0xffff, Some(there @ ([0, 0] | [0xff, 0xff]))) = (checksum, observed.get(at..at + 2)) {
        sent.copy_from_slice(there);
    }
    new[at..at + 2].copy_from_slice(&sent);
}

/// CRC32c covers the packet with zero in its place; what it was off by, it stays off by.
fn sctp(old: &[u8], new: &mut [u8], frame: &Frame) {
    let at = frame.payload + 8;
    let there = [old[at], old[at + 1], old[at + 2], old[at + 3]];
    if there == [0; 4] || old[frame.payload..at] == new[frame.payload..at] {
        return;
    }
    let computed = |bytes: &[u8]| {
        let mut packet = bytes[frame.payload..frame.end].to_vec();
        packet[8..12].fill(0);
        checksum::crc32c(&packet)
    };
    let (before, after) = (computed(old), computed(new));
    for (index, byte) in there.into_iter().enumerate() {
        new[at + index] = byte ^ before[index] ^ after[index];
    }
}

/// TTL or hop limit.
pub(super) fn one_hop_less(bytes: &mut [u8], frame: &Frame, observed: &[u8]) {
    let old = bytes.to_vec();
    if frame.v4 {
        bytes[frame.ip + 8] -= 1;
        header(&old, bytes, frame, observed);
    } else {
        bytes[frame.ip + 7] -= 1;
    }
}
