//! The Maglev hash, from the words of `ebpf/DATAPATH.md` alone: what the programs compute is compared with it.

use std::net::IpAddr;

use crate::build::End;

/// The slot of a connection, of so many.
pub fn slot(protocol: u8, client: End, frontend: End, slots: usize) -> usize {
    let number = u64::from(hash(protocol, client, frontend));
    ((number * slots as u64) >> 32) as usize
}

/// The hash of a connection.
pub fn hash(protocol: u8, client: End, frontend: End) -> u32 {
    let mut words = Vec::with_capacity(11);
    words.extend(address(client.0));
    words.extend(address(frontend.0));
    words.push(u32::from(client.1) << 16 | u32::from(frontend.1));
    words.push(protocol.into());
    words.push(0);
    let mut hash = 0x9e37_79b9_u32;
    for word in words {
        hash = (hash ^ word).wrapping_mul(0x85eb_ca6b);
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x85eb_ca6b);
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

/// Four words, most significant byte first; of an IPv4 address those of its IPv4-mapped one.
fn address(address: IpAddr) -> [u32; 4] {
    let bits = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
    .to_bits();
    [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
}
