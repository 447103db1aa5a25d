//! Datagrams in pieces that arrive in any order.

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
};

use lb_abi::{Counter, UDP, backend_flags};
use socket2::{Domain, Protocol, Socket, Type};
use testing::patience::LIMIT;

use super::{
    MODES,
    network::{FAMILIES, Network},
    packets::{NEVER, announce, attach, counted, expose, open, serve, ways},
};
use crate::support::isolated;

/// Bytes of a piece, of which the first has the header of UDP; a multiple of eight.
const PIECE: usize = 1200;
/// How many pieces a datagram has.
const PIECES: usize = 3;

/// A datagram with a right checksum.
fn datagram(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let length = u16::try_from(PIECE * PIECES).expect("of 16 bits");
    let mut bytes = Vec::from(from.port().to_be_bytes());
    bytes.extend(to.port().to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.resize(usize::from(length), b'x');
    let mut summed: Vec<u8> = [from.ip(), to.ip()]
        .into_iter()
        .flat_map(|ip| match ip {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        })
        .collect();
    summed.extend(u32::from(length).to_be_bytes());
    summed.extend(u32::from(UDP).to_be_bytes());
    summed.extend(&bytes);
    let sum: u32 = summed
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = u16::try_from((folded & 0xffff) + (folded >> 16)).expect("folded twice");
    bytes[6..8].copy_from_slice(&(!folded).to_be_bytes());
    bytes
}

/// One piece of a datagram, from its IP header on.
fn piece(from: SocketAddr, to: SocketAddr, id: u16, number: usize) -> Vec<u8> {
    let whole = datagram(from, to);
    let body = &whole[number * PIECE..][..PIECE];
    let more = u16::from(number + 1 < PIECES);
    let offset = u16::try_from(number * PIECE / 8).expect("of 13 bits");
    let length = u16::try_from(PIECE).expect("of 16 bits");
    let mut packet = Vec::new();
    match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            packet.extend([0x45, 0]);
            packet.extend((20 + length).to_be_bytes());
            packet.extend(id.to_be_bytes());
            packet.extend((more << 13 | offset).to_be_bytes());
            // The kernel fills in the checksum.
            packet.extend([64, UDP, 0, 0]);
            packet.extend(source.octets());
            packet.extend(destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            packet.extend([0x60, 0, 0, 0]);
            packet.extend((8 + length).to_be_bytes());
            packet.extend([44, 64]);
            packet.extend(source.octets());
            packet.extend(destination.octets());
            packet.extend([UDP, 0]);
            packet.extend((offset << 3 | more).to_be_bytes());
            packet.extend(u32::from(id).to_be_bytes());
        }
        _ => unreachable!("of one family"),
    }
    packet.extend(body);
    packet
}

/// Sends the pieces in this order, and waits for the answer: from whom it came.
fn ask(client: IpAddr, to: SocketAddr, id: u16, order: [usize; PIECES]) -> io::Result<SocketAddr> {
    let answered = UdpSocket::bind((client, 0))?;
    answered.set_read_timeout(Some(LIMIT))?;
    let domain = Domain::for_address(to);
    let raw = Socket::new(domain, Type::RAW, Some(Protocol::from(libc::IPPROTO_RAW)))?;
    for number in order {
        let packet = piece(answered.local_addr()?, to, id, number);
        raw.send_to(&packet, &SocketAddr::new(to.ip(), 0).into())?;
    }
    let mut buffer = [0; 128];
    answered.recv_from(&mut buffer).map(|(_, from)| from)
}

#[test]
fn datagrams_arrive_in_whatever_order_their_pieces_do() {
    isolated(|node| {
        let network = Network::new();
        let mut id = 100;
        // Of the maps, which the second mode takes over.
        let mut held = 0;
        for mode in MODES {
            let mut datapath = open(node, mode);
            attach(&mut datapath);
            for family in FAMILIES {
                announce(&datapath, family);
                let (here, there) = (
                    serve(&network.pod, family.pod),
                    serve(&network.remote, family.remote),
                );
                for (backend, flags) in [(here, backend_flags::LOCAL), (there, 0)] {
                    expose(&datapath, family, UDP, 1, Some((backend, flags)));
                    for way in ways(family) {
                        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
                            id += 1;
                            let from = network.client.run(move || ask(family.client, way, id, order));
                            let from = from.unwrap_or_else(|error| {
                                panic!("{mode:?}, {way} to {backend}, in the order {order:?}: {error}")
                            });
                            assert_eq!(from, way, "{mode:?}, {backend}, {order:?}");
                        }
                    }
                }
            }
            counted(&datapath, &NEVER);
            let counts = datapath.maps().counters().expect("the counters are read");
            // Of six orders four have pieces before the first: one, one, two and two, and that one itself comes twice.
            held += 8 * (2 + 2 + 3 + 3);
            assert_eq!(counts.get(Counter::FragmentHeld), held, "{counts:?}");
            let pieces = datapath.maps().fragments.entries().expect("the map is read");
            assert!(pieces.iter().all(|(_, ports)| ports.held == 0), "{pieces:?}");
        }
    });
}
