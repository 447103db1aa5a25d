//! Answers: RST and ICMP errors, from the IP header on.

use lb_abi::{Address, ICMP, ICMPV6, TCP};

use crate::net::{
    Hook,
    checksum::{Sum, full},
    conntrack::{ACK, FIN, RST, SYN},
    martian,
    outcome::Answer,
    packet_state::{Fragment, Headers, PacketState, Transport},
    route,
    traits::{Node, Packet},
};

/// Room for an answer, in words of four bytes: a power of two, so that a verifier sees from a mask that its length fits.
pub const ANSWER_WORDS: usize = 64;
/// What an answer quotes, at most, in bytes.
pub const QUOTE: u32 = 128;
/// The same, in words.
const QUOTE_WORDS: usize = QUOTE as usize / 4;

/// Words of an IP header without options or extension headers.
const V4: usize = 5;
const V6: usize = 10;
/// Words of a TCP header without options, and of an ICMP header.
const TCP_WORDS: usize = 5;
const ICMP_WORDS: usize = 2;
/// Hop limit of answers.
const HOP_LIMIT: u8 = 64;
/// Flags of an IPv4 header: do not fragment.
const DF: u8 = 0x40;

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Silence {
    /// Nothing is sent about such a packet, or to such a source (RFC 1122, 3.2.2; RFC 4443, 2.4 (e)).
    Defined,
    /// More was sent in this second than may be.
    Limited,
}

/// Whether a packet may be answered now. If so, it counts.
#[inline(always)]
pub fn admits<P: Packet, N: Node>(
    hook: Hook,
    packet: P,
    node: N,
    work: &mut PacketState,
) -> Result<(), Silence> {
    let group = match packet.byte(0) {
        Some(first) => first & 1 != 0,
        None => true,
    };
    let error = matches!(work.headers.transport, Transport::Icmp);
    let later = matches!(work.headers.fragment, Fragment::Later);
    if group || error || later || martian::is_one(hook, node, work.headers.tuple.source) {
        return Err(Silence::Defined);
    }
    if work.limit.admits(node.now(), node.rejects_per_second()) {
        Ok(())
    } else {
        Err(Silence::Limited)
    }
}

/// Writes an answer to [`PacketState::answer`]. The length in bytes; `None`: the packet is shorter than it was when it was
/// read, which does not happen. `partial`: the device completes the checksum of TCP.
#[inline(never)]
pub fn compose<P: Packet, N: Node>(
    answer: Answer,
    packet: P,
    node: N,
    work: &mut PacketState,
    partial: bool,
) -> Option<u32> {
    let words = match answer {
        Answer::Reject if work.headers.tuple.protocol == TCP => reset(packet, work, partial)?,
        Answer::Reject => error(
            packet,
            work,
            Error::PORT_UNREACHABLE,
            work.headers.tuple.destination,
        )?,
        Answer::TimeExceeded => error(
            packet,
            work,
            Error::TIME_EXCEEDED,
            own_address(node, &work.headers),
        )?,
        Answer::TooBig => error(
            packet,
            work,
            Error::too_big(work.mtu),
            own_address(node, &work.headers),
        )?,
    };
    // `as`: at most ANSWER_WORDS.
    Some(words as u32 * 4)
}

/// What the node's own errors are sent from: the address of its own that was asked, if it was one (RFC 1812, 4.3.2.4).
#[inline(always)]
fn own_address<N: Node>(node: N, headers: &Headers) -> Address {
    let own = node.own_address(headers.v4);
    let asked = headers.tuple.destination;
    if own == Address::UNSPECIFIED_V4 || own == Address::UNSPECIFIED_V6 || route::is_node(node, asked) {
        asked
    } else {
        own
    }
}

/// A kind of ICMP error: type and code of both families, and what follows the checksum.
#[derive(Clone, Copy)]
struct Error {
    v4: [u8; 2],
    v6: [u8; 2],
    mtu: u32,
}

impl Error {
    const PORT_UNREACHABLE: Self = Self {
        v4: [3, 3],
        v6: [1, 4],
        mtu: 0,
    };
    const TIME_EXCEEDED: Self = Self {
        v4: [11, 0],
        v6: [3, 0],
        mtu: 0,
    };

    /// RFC 1191, 4: the MTU is in the lower half; RFC 4443, 3.2: in all of the word.
    const fn too_big(mtu: u32) -> Self {
        Self {
            v4: [3, 4],
            v6: [2, 0],
            mtu,
        }
    }
}

/// An ICMP error; how many words it has.
#[inline(always)]
fn error<P: Packet>(packet: P, work: &mut PacketState, error: Error, source: Address) -> Option<usize> {
    let Headers {
        tuple, l3, l4, v4, ..
    } = work.headers;
    // Of a whole L4 header there are 8 bytes.
    let quote = l4.wrapping_sub(l3) + 8;
    let quote = if quote > QUOTE { QUOTE } else { quote };
    // Zeros behind the quote, so that the sum is over as many words whatever is quoted: a loop whose end is not known
    // has older verifiers follow every way out of it.
    let copied = if v4 {
        work.answer[V4 + ICMP_WORDS..V4 + ICMP_WORDS + QUOTE_WORDS].fill(0);
        packet.copy::<{ V4 + ICMP_WORDS }>(l3, quote, &mut work.answer)
    } else {
        work.answer[V6 + ICMP_WORDS..V6 + ICMP_WORDS + QUOTE_WORDS].fill(0);
        packet.copy::<{ V6 + ICMP_WORDS }>(l3, quote, &mut work.answer)
    };
    if !copied {
        return None;
    }
    // `as`: 128 at most.
    let length = ICMP_WORDS + (quote / 4) as usize;
    let answer = &mut work.answer;
    if v4 {
        header_v4(answer, source, tuple.source, ICMP, length);
        let [kind, code] = error.v4;
        [answer[V4], answer[V4 + 1]] = [u32::from_ne_bytes([kind, code, 0, 0]), error.mtu.to_be()];
        let [high, low] = full(&answer[V4..V4 + ICMP_WORDS + QUOTE_WORDS], Sum::NONE);
        answer[V4] = u32::from_ne_bytes([kind, code, high, low]);
        return Some(V4 + length);
    }
    header_v6(answer, source, tuple.source, ICMPV6, length);
    let [kind, code] = error.v6;
    [answer[V6], answer[V6 + 1]] = [u32::from_ne_bytes([kind, code, 0, 0]), error.mtu.to_be()];
    let pseudo = Sum::pseudo_header(source, tuple.source, ICMPV6, bytes(length));
    let [high, low] = full(&answer[V6..V6 + ICMP_WORDS + QUOTE_WORDS], pseudo);
    answer[V6] = u32::from_ne_bytes([kind, code, high, low]);
    Some(V6 + length)
}

/// RST (RFC 9293, 3.10.7.1); how many words it has.
#[inline(always)]
fn reset<P: Packet>(packet: P, work: &mut PacketState, partial: bool) -> Option<usize> {
    let Headers {
        tuple, l4, end, v4, ..
    } = work.headers;
    let [ports, sequence, acknowledgement, fourth] = packet.words::<4>(l4)?;
    let [offset, flags, ..] = fourth.to_ne_bytes();
    let payload = end.wrapping_sub(l4).wrapping_sub(u32::from(offset >> 4) * 4);
    let numbers = numbers(
        u32::from_be(sequence),
        u32::from_be(acknowledgement),
        flags,
        payload,
    );
    let [a, b, c, d] = ports.to_ne_bytes();
    let segment = [
        u32::from_ne_bytes([c, d, a, b]),
        numbers.sequence.to_be(),
        numbers.acknowledgement.to_be(),
        u32::from_ne_bytes([5 << 4, numbers.flags, 0, 0]),
    ];
    let pseudo = Sum::pseudo_header(tuple.destination, tuple.source, TCP, bytes(TCP_WORDS));
    let checksum = if partial {
        pseudo.partial()
    } else {
        full(&segment, pseudo)
    };
    let [high, low] = checksum;
    let [first, second, third, fourth] = segment;
    let segment = [
        first,
        second,
        third,
        fourth,
        u32::from_ne_bytes([high, low, 0, 0]),
    ];
    let answer = &mut work.answer;
    if v4 {
        header_v4(answer, tuple.destination, tuple.source, TCP, TCP_WORDS);
        [answer[5], answer[6], answer[7], answer[8], answer[9]] = segment;
        return Some(V4 + TCP_WORDS);
    }
    header_v6(answer, tuple.destination, tuple.source, TCP, TCP_WORDS);
    [answer[10], answer[11], answer[12], answer[13], answer[14]] = segment;
    Some(V6 + TCP_WORDS)
}

/// Numbers and flags of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Numbers {
    sequence: u32,
    acknowledgement: u32,
    flags: u8,
}

/// Of the RST to a segment with these numbers and flags, and so many bytes of data.
#[inline(always)]
const fn numbers(sequence: u32, acknowledgement: u32, flags: u8, payload: u32) -> Numbers {
    if flags & ACK != 0 {
        return Numbers {
            sequence: acknowledgement,
            acknowledgement: 0,
            flags: RST,
        };
    }
    // SYN and FIN have numbers, too.
    let controls = (flags & SYN != 0) as u32 + (flags & FIN != 0) as u32;
    Numbers {
        sequence: 0,
        acknowledgement: sequence.wrapping_add(payload).wrapping_add(controls),
        flags: RST | ACK,
    }
}

/// `words`: what follows.
#[inline(always)]
fn header_v4(
    answer: &mut [u32; ANSWER_WORDS],
    source: Address,
    destination: Address,
    protocol: u8,
    words: usize,
) {
    let [length_high, length_low] = bytes(V4 + words).to_be_bytes();
    let header = [
        u32::from_ne_bytes([0x45, 0, length_high, length_low]),
        u32::from_ne_bytes([0, 0, DF, 0]),
        u32::from_ne_bytes([HOP_LIMIT, protocol, 0, 0]),
        u32::from_ne_bytes(source.last4()),
        u32::from_ne_bytes(destination.last4()),
    ];
    let [high, low] = full(&header, Sum::NONE);
    [answer[0], answer[1], answer[2], answer[3], answer[4]] = header;
    answer[2] = u32::from_ne_bytes([HOP_LIMIT, protocol, high, low]);
}

/// `words`: what follows.
#[inline(always)]
fn header_v6(
    answer: &mut [u32; ANSWER_WORDS],
    source: Address,
    destination: Address,
    protocol: u8,
    words: usize,
) {
    let [length_high, length_low] = bytes(words).to_be_bytes();
    [answer[0], answer[1]] = [
        u32::from_ne_bytes([0x60, 0, 0, 0]),
        u32::from_ne_bytes([length_high, length_low, protocol, HOP_LIMIT]),
    ];
    [answer[2], answer[3], answer[4], answer[5]] = source.words();
    [answer[6], answer[7], answer[8], answer[9]] = destination.words();
}

/// Words, in bytes; there are [`ANSWER_WORDS`] at most.
#[inline(always)]
const fn bytes(words: usize) -> u16 {
    // `as`: TryFrom is not const; 256 at most.
    (words * 4) as u16
}

#[cfg(test)]
mod tests;
