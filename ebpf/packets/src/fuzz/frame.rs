//! A packet's bytes from its description.

use std::net::IpAddr;

use lb_abi::{SCTP, TCP, Tuple, UDP};

use super::{
    pool,
    step::{Checksum, PacketKind, Piece, Shape, Step, Twist},
};
use crate::{
    build::{C_TAG, Error, Packet, S_TAG, icmp, other, quoting, sctp, tcp, udp},
    model::{Read, read},
    test_node::{NODE_LINK, PEER_LINK},
};

/// The longest frame that the kernel takes: a page, less what it needs for itself.
const LONGEST: usize = 3_500;

/// The frame of a step whose packets have this tuple. `v4`: the family of what has none.
pub(super) fn bytes(step: &Step, tuple: &Tuple, v4: bool) -> Vec<u8> {
    let mut frame = match &step.kind {
        PacketKind::Noise(noise) => {
            let ethertype = if v4 { [0x08, 0x00] } else { [0x86, 0xdd] };
            [&NODE_LINK[..], &PEER_LINK, &ethertype, noise].concat()
        }
        _ => packet(step, tuple).bytes(),
    };
    for twist in &step.twists {
        spoil(&mut frame, 14, *twist);
    }
    frame.resize(frame.len().clamp(15, LONGEST), 0);
    // The kernel runs nothing on less than the header of its ethertype, but does not look behind a tag.
    let least = match frame[12..14] {
        [0x08, 0x00] => 34,
        [0x86, 0xdd] => 54,
        _ => 0,
    };
    if frame.len() < least {
        frame.splice(12..12, [0x81, 0, 0, 1]);
    }
    frame
}

fn packet(step: &Step, tuple: &Tuple) -> Packet {
    let (source, destination) = (IpAddr::from(tuple.source), IpAddr::from(tuple.destination));
    let shape = &step.shape;
    let packet = match &step.kind {
        PacketKind::Error {
            kind,
            router,
            quoted,
            astray,
            twists,
        } => {
            let about = dressed(talk(&tuple.inverse(), shape), shape, source.is_ipv4(), false);
            let v4 = source.is_ipv4();
            let source = if *router { pool::family(v4).gateway } else { source };
            let destination = if *astray {
                pool::family(v4).node_also
            } else {
                destination
            };
            error(source, destination, *kind, (&about, *quoted), twists)
        }
        PacketKind::Icmp(kind) => icmp(source, destination, (*kind, 0), [0, 1, 0, 2], b"echo"),
        PacketKind::Other(protocol) => other(source, destination, *protocol, &[0x5a; 24]),
        PacketKind::Talk | PacketKind::Noise(_) => talk(tuple, shape),
    };
    let plain = !matches!(step.kind, PacketKind::Talk);
    let mut packet = dressed(packet, shape, source.is_ipv4(), !plain);
    for tag in 0..shape.tags {
        packet = packet.tag(
            if tag == 0 && shape.tags > 1 { S_TAG } else { C_TAG },
            100 + tag as u16,
        );
    }
    if shape.group {
        packet = packet.link([0x01, 0, 0x5e, 0, 0, 1], PEER_LINK);
    }
    packet.padded(shape.padding)
}

fn talk(tuple: &Tuple, shape: &Shape) -> Packet {
    let from = (IpAddr::from(tuple.source), tuple.source_port.get());
    let to = (IpAddr::from(tuple.destination), tuple.destination_port.get());
    match tuple.protocol {
        TCP => {
            let packet = tcp(from, to)
                .numbers(0x1000_0000 + shape.data as u32, 0x2000_0000)
                .data(shape.data);
            // FIN to URG, one by one.
            let set: [fn(Packet) -> Packet; 6] = [
                Packet::fin,
                Packet::syn,
                Packet::rst,
                Packet::push,
                Packet::ack,
                Packet::urgent,
            ];
            (0..6).fold(packet, |packet, bit| {
                if shape.flags >> bit & 1 == 1 {
                    set[bit](packet)
                } else {
                    packet
                }
            })
        }
        UDP => match shape.checksum {
            Checksum::Right => udp(from, to).data(shape.data),
            Checksum::Absent => udp(from, to).data(shape.data).no_checksum(),
            Checksum::Zero => udp(from, to).zero_sum(),
        },
        SCTP => {
            let packet = sctp(from, to, shape.chunk).data(shape.data);
            if shape.checksum == Checksum::Absent {
                packet.no_checksum()
            } else {
                packet
            }
        }
        protocol => other(from.0, to.0, protocol, &[0x5a; 24]),
    }
}

/// With the headers of the shape. `pieces`: also cut into pieces.
fn dressed(packet: Packet, shape: &Shape, v4: bool, pieces: bool) -> Packet {
    let mut packet = packet.hops(shape.hops).id(shape.id);
    if v4 {
        if shape.dont_fragment {
            packet = packet.dont_fragment();
        }
        let mut room = 40;
        for option in &shape.options {
            if option.len() <= room {
                room -= option.len();
                packet = packet.option(option);
            }
        }
    } else {
        for extension in &shape.extensions {
            packet = packet.extension(extension.clone());
        }
    }
    let whole = packet.bytes().len() - packet.network_offset() - packet.header_length();
    let middle = whole / 2 / 8 * 8;
    match shape.piece {
        Piece::Atomic if !v4 => packet.atomic(),
        Piece::First if pieces => packet.fragment(0..middle.max(16).min(whole)),
        Piece::Middle if pieces && middle >= 8 => packet.fragment(8..middle + 8),
        Piece::Last if pieces => packet.last_fragment(middle),
        _ => packet,
    }
}

fn error(
    source: IpAddr,
    destination: IpAddr,
    kind: usize,
    (about, quoted): (&Packet, usize),
    twists: &[Twist],
) -> Packet {
    let kinds = [
        Error::TIME_EXCEEDED,
        Error::PORT_UNREACHABLE,
        Error::PARAMETER_PROBLEM,
        Error::too_big(1280),
        Error {
            v4: (4, 0),
            v6: (5, 0),
            rest: 0,
        },
        Error {
            v4: (3, 1),
            v6: (1, 0),
            rest: 0x0102_0304,
        },
    ];
    let error = kinds[kind % kinds.len()];
    if twists.is_empty() {
        return quoting(source, destination, error, about, quoted);
    }
    let mut quote = about.network();
    quote.truncate(about.header_length() + quoted);
    for twist in twists {
        spoil(&mut quote, 0, *twist);
    }
    let kind = if source.is_ipv4() { error.v4 } else { error.v6 };
    icmp(source, destination, kind, error.rest.to_be_bytes(), &quote)
}

/// Changes bytes; the IP header begins at `ip`.
fn spoil(bytes: &mut Vec<u8>, ip: usize, twist: Twist) {
    let length = bytes.len();
    if length <= ip {
        return;
    }
    // Headers, rather than data.
    let near = |at: usize| ip + at % (length - ip).min(100);
    match twist {
        Twist::Set(at, to) => bytes[near(at)] = to,
        Twist::Flip(at, bit) => bytes[near(at)] ^= 1 << bit,
        Twist::Field(at, to) => bytes[near(at)] = to,
        Twist::Transport(at, to) => {
            let payload = match read(bytes, false) {
                Read::Whole(frame) if ip == 14 => frame.payload,
                _ => ip + if bytes[ip] >> 4 == 6 { 40 } else { 20 },
            };
            if let Some(byte) = bytes.get_mut(payload + at) {
                *byte = to;
            }
        }
        Twist::Cut(at) => bytes.truncate(near(at)),
        Twist::More(more) => bytes.resize(length + more, 0xa5),
    }
}
