//! A program of XDP that sends datagrams elsewhere, as one of an earlier load would whose maps are stale.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::AsFd as _,
};

use super::{CraftedHook, instruction, load_crafted, load_map};
use crate::{HeldProgram, LoaderError, sys};

/// Of Ethernet.
const LINK: i16 = 14;
/// `IPPROTO_UDP`.
const UDP: i32 = 17;

/// Loads a program of XDP that changes the destination of UDP datagrams without IP options, from the first of each pair to the second,
/// and lets everything pass. It uses these maps, by their ids: their owner is its owner.
///
/// # Errors
/// What the kernel said.
///
/// # Panics
/// A pair is of two families.
pub fn load_misleading(
    name: &str,
    maps: &[u32],
    pairs: &[(SocketAddr, SocketAddr)],
) -> Result<HeldProgram, LoaderError> {
    let mut held = Vec::new();
    let mut code = Vec::new();
    for map in maps {
        let fd = sys::map::open(*map, 0).map_err(LoaderError::kernel(format!("open map {map}")))?;
        code.extend(load_map(fd.as_fd(), 0));
        held.push(fd);
    }
    code.extend([
        instruction(0x61, 2, 1, 0, 0), // r2 = data
        instruction(0x61, 3, 1, 4, 0), // r3 = data_end
    ]);
    for &(from, to) in pairs {
        code.extend(rewrite(from, to));
    }
    // r0 = XDP_PASS; exit
    code.extend([instruction(0xb7, 0, 0, 0, 2), 0x95]);
    load_crafted(name, CraftedHook::Xdp, &code)
}

/// Where something is in a packet, and how many bytes it has.
#[derive(Clone, Copy)]
enum Bytes {
    One,
    Two,
    Four,
}

impl Bytes {
    /// The size in the codes of loads and stores.
    const fn code(self) -> u8 {
        match self {
            Self::One => 0x10,
            Self::Two => 0x08,
            Self::Four => 0x00,
        }
    }
}

/// What a header of one family looks like, from the beginning of the frame.
struct Header {
    ether_type: [u8; 2],
    protocol: i16,
    destination: i16,
    /// Of the header itself; IPv6 has none.
    checksum: Option<i16>,
    datagram: i16,
}

const IPV4: Header = Header {
    ether_type: [0x08, 0x00],
    protocol: LINK + 9,
    destination: LINK + 16,
    checksum: Some(LINK + 10),
    datagram: LINK + 20,
};
const IPV6: Header = Header {
    ether_type: [0x86, 0xdd],
    protocol: LINK + 6,
    destination: LINK + 24,
    checksum: None,
    datagram: LINK + 40,
};

/// Changes one destination; whatever is for another falls through. r2 and r3 stay.
fn rewrite(from: SocketAddr, to: SocketAddr) -> Vec<u64> {
    assert_eq!(
        from.is_ipv4(),
        to.is_ipv4(),
        "{from} and {to} are of two families"
    );
    let header = if from.is_ipv4() { IPV4 } else { IPV6 };
    let [old, new] = [words(from.ip()), words(to.ip())];
    let port = |of: SocketAddr| i32::from(u16::from_ne_bytes(of.port().to_be_bytes()));
    let mut tests = vec![(12, Bytes::Two, i32::from(u16::from_ne_bytes(header.ether_type)))];
    if from.is_ipv4() {
        // Version 4, no options.
        tests.push((LINK, Bytes::One, 0x45));
    }
    tests.push((header.protocol, Bytes::One, UDP));
    tests.extend(
        at(header.destination)
            .zip(&old)
            .map(|(at, word)| (at, Bytes::Four, *word)),
    );
    tests.push((header.datagram + 2, Bytes::Two, port(from)));

    let mut then = Vec::new();
    for (at, word) in at(header.destination).zip(&new) {
        then.push(instruction(0x62, 2, 0, at, *word));
    }
    then.push(instruction(0x6a, 2, 0, header.datagram + 2, port(to)));
    let of_address = difference(&old, &new, 0, 0);
    if let Some(at) = header.checksum {
        then.extend(adjust(at, of_address));
    }
    let with_port = difference(&old, &new, port(from), port(to));
    then.extend(adjust(header.datagram + 6, with_port));

    // Each test is a load and a jump to behind the last of `then`.
    let mut code = vec![
        instruction(0xbf, 4, 2, 0, 0),
        instruction(0x07, 4, 0, 0, i32::from(header.datagram) + 8),
    ];
    let mut left = tests.len() * 2 + then.len();
    let behind = |left: usize| i16::try_from(left).unwrap_or(i16::MAX);
    code.push(instruction(0x2d, 4, 3, behind(left), 0)); // if r4 > r3
    for (at, size, wanted) in tests {
        left -= 2;
        code.push(instruction(0x61 | size.code(), 5, 2, at, 0));
        code.push(instruction(0x56, 5, 0, behind(left), wanted)); // if w5 != wanted
    }
    code.extend(then);
    code
}

/// An address as the kernel's words.
fn words(address: IpAddr) -> Vec<i32> {
    let bytes = match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    bytes
        .chunks_exact(4)
        .filter_map(|word| word.try_into().ok().map(i32::from_ne_bytes))
        .collect()
}

/// Where its words are.
fn at(first: i16) -> impl Iterator<Item = i16> {
    (first..).step_by(4)
}

/// What a sum of 16-bit words in ones' complement changes by (RFC 1624).
fn difference(old: &[i32], new: &[i32], old_port: i32, new_port: i32) -> i32 {
    let halves = |word: &i32| {
        let word = word.cast_unsigned();
        [word & 0xffff, word >> 16]
    };
    let new = new.iter().flat_map(halves).chain([new_port.cast_unsigned()]);
    let old = old.iter().flat_map(halves).chain([old_port.cast_unsigned()]);
    let mut sum: u32 = new.chain(old.map(|half| !half & 0xffff)).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum.cast_signed()
}

/// Adjusts the checksum at an offset.
fn adjust(at: i16, difference: i32) -> Vec<u64> {
    vec![
        instruction(0x69, 5, 2, at, 0),         // r5 = the checksum
        instruction(0xa7, 5, 0, 0, 0xffff),     // r5 ^= 0xffff
        instruction(0x07, 5, 0, 0, difference), // r5 += difference
        instruction(0xbf, 4, 5, 0, 0),          // r4 = r5
        instruction(0x77, 4, 0, 0, 16),         // r4 >>= 16
        instruction(0x57, 5, 0, 0, 0xffff),     // r5 &= 0xffff
        instruction(0x0f, 5, 4, 0, 0),          // r5 += r4
        instruction(0xa7, 5, 0, 0, 0xffff),     // r5 ^= 0xffff
        instruction(0x6b, 2, 5, at, 0),         // the checksum = r5
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ones' complement of the sum of the words.
    fn checksum(words: &[u32]) -> u32 {
        let mut sum: u32 = words.iter().sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !sum & 0xffff
    }

    #[test]
    fn a_checksum_that_is_adjusted_is_that_of_the_new_words() {
        let (old, new) = (
            i32::from_ne_bytes([10, 96, 0, 1]),
            i32::from_ne_bytes([10, 0, 2, 255]),
        );
        let halves = |word: i32| [word.cast_unsigned() & 0xffff, word.cast_unsigned() >> 16];
        let [before, after] = [old, new].map(|word| checksum(&[&halves(word)[..], &[0x1234]].concat()));
        let adjusted = (!before & 0xffff) + difference(&[old], &[new], 0, 0).cast_unsigned();
        let folded = (adjusted & 0xffff) + (adjusted >> 16);
        assert_eq!(!folded & 0xffff, after);
    }

    #[test]
    fn jumps_of_one_pair_end_right_behind_it() {
        for (from, to) in [
            ("10.96.0.1:80", "10.0.2.3:8080"),
            ("[fd00::1]:80", "[fd00::2]:8080"),
        ] {
            let code = rewrite(from.parse().unwrap(), to.parse().unwrap());
            for (index, word) in code.iter().enumerate() {
                if matches!(word & 0xff, 0x2d | 0x56) {
                    let offset = usize::try_from((word >> 16) & 0xffff).unwrap();
                    assert_eq!(index + 1 + offset, code.len(), "{from}, {index}");
                }
            }
        }
    }
}
