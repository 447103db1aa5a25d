//! The hash against an independent writing of it, and what is asked of a hash.

extern crate std;

use std::{net::IpAddr, vec::Vec};

use lb_abi::{Port, SCTP, TCP, UDP};

use super::*;

fn tuple(source: &str, destination: &str, ports: (u16, u16), protocol: u8) -> Tuple {
    let address = |text: &str| match text.parse::<IpAddr>() {
        Ok(ip) => ip.into(),
        Err(error) => panic!("{text}: {error}"),
    };
    Tuple {
        source: address(source),
        destination: address(destination),
        source_port: Port::new(ports.0),
        destination_port: Port::new(ports.1),
        protocol,
        pad: [0; 3],
    }
}

fn examples() -> Vec<Tuple> {
    [
        tuple("10.0.0.1", "10.96.0.1", (40_000, 80), TCP),
        tuple("10.0.0.1", "10.96.0.1", (40_001, 80), TCP),
        tuple("10.0.0.1", "10.96.0.1", (40_000, 80), UDP),
        tuple("10.96.0.1", "10.0.0.1", (80, 40_000), TCP),
        tuple("2001:db8::1", "fd00::1", (1, 65_535), SCTP),
        tuple("::", "::", (0, 0), 0),
    ]
    .into()
}

/// As the rule is written: over the bytes of the words, in 64 bits, reduced after each step.
fn by_the_rule(tuple: &Tuple) -> u32 {
    let mut bytes = Vec::new();
    bytes.extend(tuple.source.octets());
    bytes.extend(tuple.destination.octets());
    bytes.extend(tuple.source_port.0);
    bytes.extend(tuple.destination_port.0);
    bytes.extend([0, 0, 0, tuple.protocol, 0, 0, 0, 0]);
    assert_eq!(bytes.len(), 44, "eleven words");
    let modulo = |number: u64| number % (1 << 32);
    let mut h = 0x9e37_79b9_u64;
    for word in bytes.chunks(4) {
        let word = word.iter().fold(0, |word, byte| word * 256 + u64::from(*byte));
        let product = modulo((h ^ word) * 0x85eb_ca6b);
        let rotated = modulo(product << 13) + (product >> 19);
        h = modulo(rotated * 5 + 0xe654_6b64);
    }
    h ^= h >> 16;
    h = modulo(h * 0x85eb_ca6b);
    h ^= h >> 13;
    h = modulo(h * 0xc2b2_ae35);
    h ^= h >> 16;
    u32::try_from(h).unwrap_or_else(|_| panic!("reduced"))
}

#[test]
fn the_hash_is_that_of_the_rule() {
    for tuple in examples() {
        assert_eq!(maglev_hash(&tuple), by_the_rule(&tuple), "{tuple:?}");
    }
}

#[test]
fn the_hash_stays_what_it_is() {
    let hashes: Vec<u32> = examples().iter().map(maglev_hash).collect();
    assert_eq!(hashes, PINNED);
}

/// Another program, on another node, in another version, must have these.
const PINNED: [u32; 6] = [
    223_555_948,
    76_513_323,
    2_326_249_475,
    544_840_551,
    1_874_593_443,
    4_172_615_820,
];

#[test]
fn every_field_counts() {
    let examples = examples();
    for (index, one) in examples.iter().enumerate() {
        for other in examples.iter().skip(index + 1) {
            assert_ne!(maglev_hash(one), maglev_hash(other), "{one:?}, {other:?}");
        }
    }
}

#[test]
#[cfg_attr(
    miri,
    ignore = "statistics of more numbers than Miri has time for, by code that other tests run"
)]
fn neighbouring_connections_are_spread_over_the_slots() {
    const SLOTS: u32 = 16;
    const EACH: u32 = 1024;
    let mut hits = [0_u32; SLOTS as usize];
    for port in 0..u16::try_from(SLOTS * EACH).unwrap_or(u16::MAX) {
        let tuple = tuple("10.0.0.1", "10.96.0.1", (port, 80), TCP);
        hits[crate::slot(maglev_hash(&tuple), SLOTS) as usize] += 1;
    }
    // Of 16 384 uniform draws a slot gets 1024 ± 31 (σ); six σ are beyond chance.
    for hit in hits {
        assert!(hit.abs_diff(EACH) < 6 * 31, "{hits:?}");
    }
}
