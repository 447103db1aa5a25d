//! Section 1: where the parts of a frame are, and what is wrong with it.

use lb_abi::{Address, ICMP, ICMPV6, Port, SCTP, TCP, UDP};

/// Extension headers that are read, at most.
const EXTENSIONS: u32 = 6;

/// What an IP packet is, as far as its IP headers say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// Not IP.
    Other,
    /// The fixed part of the header is not there, or has another version.
    Unreadable,
    /// Destination known, and something wrong.
    Malformed(Address),
    /// Destination known, and the sender has chosen the route.
    SourceRouted(Address),
    /// As it should be.
    Whole(Frame),
}

/// Where the parts of a packet are: offsets from the beginning of the bytes that were read.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each is named by what it is")]
pub struct Frame {
    pub v4: bool,
    pub ip: usize,
    /// Where the headers of IP end.
    pub payload: usize,
    /// Where the packet ends.
    pub end: usize,
    pub source: Address,
    pub destination: Address,
    pub protocol: u8,
    pub fragment: Option<Fragment>,
}

/// One piece of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// Of the datagram.
    pub id: [u8; 4],
    /// Whether it is the one with the ports.
    pub first: bool,
}

impl Frame {
    /// A fragment other than the first.
    pub fn later(&self) -> bool {
        self.fragment.is_some_and(|fragment| !fragment.first)
    }
}

/// What is behind the headers of IP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Less than a header.
    Malformed,
    /// A fragment other than the first.
    Later,
    /// TCP, UDP, SCTP.
    Ports {
        /// From.
        source: Port,
        /// To.
        destination: Port,
        /// TCP: the flags. SCTP: the first chunk's type.
        signal: u8,
    },
    /// ICMP or ICMPv6, by its type.
    Icmp(u8),
    /// Without ports.
    Other,
}

/// Behind at most two tags: where the IP header begins, and which.
pub(super) fn link(frame: &[u8]) -> Option<(usize, bool)> {
    let mut at = 12;
    for _ in 0..3 {
        match frame.get(at..at + 2)? {
            [0x08, 0x00] => return Some((at + 2, true)),
            [0x86, 0xdd] => return Some((at + 2, false)),
            [0x81, 0x00] | [0x88, 0xa8] => at += 4,
            _ => return None,
        }
    }
    None
}

/// Reads a frame. `merged`: of a packet that was merged, whose length may be 0.
pub fn read(frame: &[u8], is_gso: bool) -> Read {
    match link(frame) {
        None => Read::Other,
        Some((ip, v4)) => internet(
            frame,
            ip,
            v4,
            Lengths {
                is_gso,
                quoted: false,
            },
        ),
    }
}

/// How lengths are taken.
#[derive(Clone, Copy)]
pub(super) struct Lengths {
    /// 0 is as long as there are bytes.
    pub(super) is_gso: bool,
    /// They may be larger than what is there.
    pub(super) quoted: bool,
}

/// Reads an IP packet that begins at `ip`.
pub(super) fn internet(bytes: &[u8], ip: usize, v4: bool, lengths: Lengths) -> Read {
    if v4 {
        internet_v4(bytes, ip, lengths)
    } else {
        internet_v6(bytes, ip, lengths)
    }
}

fn word(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

fn internet_v4(bytes: &[u8], ip: usize, lengths: Lengths) -> Read {
    let there = bytes.len() - ip;
    if there < 20 || bytes[ip] >> 4 != 4 {
        return Read::Unreadable;
    }
    let v4 = |at: usize| Address::v4([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let destination = v4(ip + 16);
    let header = usize::from(bytes[ip] & 15) * 4;
    let mut total = word(bytes, ip + 2);
    if total == 0 && lengths.is_gso {
        total = there;
    }
    if header < 20 || header > there || total < header || (total > there && !lengths.quoted) {
        return Read::Malformed(destination);
    }
    match options(&bytes[ip + 20..ip + header]) {
        Options::Malformed => return Read::Malformed(destination),
        Options::SourceRoute => return Read::SourceRouted(destination),
        Options::Fine => {}
    }
    let [high, low] = [bytes[ip + 6], bytes[ip + 7]];
    let offset = u16::from_be_bytes([high & 0x1f, low]);
    let fragment = (offset != 0 || high & 0x20 != 0).then(|| Fragment {
        id: [bytes[ip + 4], bytes[ip + 5], 0, 0],
        first: offset == 0,
    });
    Read::Whole(Frame {
        v4: true,
        ip,
        payload: ip + header,
        end: ip + total.min(there),
        source: v4(ip + 12),
        destination,
        protocol: bytes[ip + 9],
        fragment,
    })
}

enum Options {
    Fine,
    Malformed,
    SourceRoute,
}

fn options(mut options: &[u8]) -> Options {
    while let Some(kind) = options.first() {
        let length = match kind {
            0 => return Options::Fine,
            1 => 1,
            _ => match options.get(1) {
                Some(length) if *length >= 2 && usize::from(*length) <= options.len() => {
                    if matches!(kind, 131 | 137) {
                        return Options::SourceRoute;
                    }
                    usize::from(*length)
                }
                _ => return Options::Malformed,
            },
        };
        options = &options[length..];
    }
    Options::Fine
}

fn internet_v6(bytes: &[u8], ip: usize, lengths: Lengths) -> Read {
    let there = bytes.len() - ip;
    if there < 40 || bytes[ip] >> 4 != 6 {
        return Read::Unreadable;
    }
    let v6 = |at: usize| Address::v6(bytes[at..at + 16].try_into().expect("16 bytes"));
    let (source, destination) = (v6(ip + 8), v6(ip + 24));
    if source.is_v4() || destination.is_v4() {
        return Read::Other;
    }
    let mut total = 40 + word(bytes, ip + 4);
    if total == 40 && lengths.is_gso {
        total = there;
    }
    if total > there && !lengths.quoted {
        return Read::Malformed(destination);
    }
    let mut frame = Frame {
        v4: false,
        ip,
        payload: ip + 40,
        end: ip + total.min(there),
        source,
        destination,
        protocol: bytes[ip + 6],
        fragment: None,
    };
    for read in 0..=EXTENSIONS {
        let first = read == 0;
        if !(matches!(frame.protocol, 43 | 44 | 51 | 60) || (first && frame.protocol == 0)) {
            return Read::Whole(frame);
        }
        let header = &bytes[frame.payload..frame.end];
        let length = match header {
            [_, _, ..] if frame.protocol == 44 => 8,
            [_, units, ..] if frame.protocol == 51 => (usize::from(*units) + 2) * 4,
            [_, units, ..] => (usize::from(*units) + 1) * 8,
            _ => return Read::Malformed(destination),
        };
        if read == EXTENSIONS || header.len() < length {
            return Read::Malformed(destination);
        }
        let (header, kind) = (&header[..length], frame.protocol);
        frame.payload += length;
        frame.protocol = header[0];
        match kind {
            0 if !lengths.is_gso && jumbo(&header[2..]) => return Read::Malformed(destination),
            43 if header[2] == 0 || header[3] != 0 => return Read::SourceRouted(destination),
            44 => {
                let [high, low] = [header[2], header[3]];
                let offset = u16::from_be_bytes([high, low]) >> 3;
                if offset != 0 || low & 1 == 1 {
                    frame.fragment = Some(Fragment {
                        id: [header[4], header[5], header[6], header[7]],
                        first: offset == 0,
                    });
                }
                if offset != 0 {
                    // What follows is the middle of something.
                    return Read::Whole(frame);
                }
            }
            _ => {}
        }
    }
    Read::Malformed(destination)
}

/// Whether hop-by-hop options have a jumbo payload length (RFC 2675).
fn jumbo(mut options: &[u8]) -> bool {
    while let Some(kind) = options.first() {
        let length = match (kind, options.get(1)) {
            (0xc2, _) => return true,
            (0, _) => 1,
            (_, Some(length)) => 2 + usize::from(*length),
            (_, None) => return false,
        };
        options = options.get(length..).unwrap_or_default();
    }
    false
}

/// Reads what is behind the headers of IP.
pub fn transport(bytes: &[u8], frame: &Frame, is_gso: bool) -> Transport {
    let icmp = if frame.v4 { ICMP } else { ICMPV6 };
    let ported = matches!(frame.protocol, TCP | UDP | SCTP);
    if !ported && frame.protocol != icmp {
        return Transport::Other;
    }
    if frame.later() {
        return Transport::Later;
    }
    let there = &bytes[frame.payload..frame.end];
    let whole = match frame.protocol {
        TCP => there.len() >= 20 && (20..=there.len()).contains(&(usize::from(there[12] >> 4) * 4)),
        UDP if there.len() < 8 => false,
        UDP if is_gso => true,
        UDP if frame.fragment.is_some() => word(there, 4) >= 8,
        UDP => (8..=there.len()).contains(&word(there, 4)),
        SCTP => there.len() >= 13,
        _ => there.len() >= 8,
    };
    if !whole {
        return Transport::Malformed;
    }
    if !ported {
        return Transport::Icmp(there[0]);
    }
    Transport::Ports {
        source: Port([there[0], there[1]]),
        destination: Port([there[2], there[3]]),
        signal: match frame.protocol {
            TCP => there[13],
            SCTP => there[12],
            _ => 0,
        },
    }
}
