//! The number by which every node chooses the same slot for a connection.

use lb_abi::Tuple;

/// Hash of the tuple that a client sends from: the same on every node and in every version, as connections move from
/// one node to another. In the manner of MurmurHash3 (Austin Appleby), whose constants and last step it has, of eleven
/// words; the last is zero.
#[inline(always)]
pub fn maglev_hash(tuple: &Tuple) -> u32 {
    let ports = (u32::from(tuple.source_port.get()) << 16) | u32::from(tuple.destination_port.get());
    let [a, b, c, d] = tuple.source.words();
    let [e, f, g, h] = tuple.destination.words();
    let mut hash = 0x9e37_79b9;
    hash = mix(hash, u32::from_be(a));
    hash = mix(hash, u32::from_be(b));
    hash = mix(hash, u32::from_be(c));
    hash = mix(hash, u32::from_be(d));
    hash = mix(hash, u32::from_be(e));
    hash = mix(hash, u32::from_be(f));
    hash = mix(hash, u32::from_be(g));
    hash = mix(hash, u32::from_be(h));
    hash = mix(hash, ports);
    hash = mix(hash, u32::from(tuple.protocol));
    finish(mix(hash, 0))
}

#[inline(always)]
const fn mix(hash: u32, word: u32) -> u32 {
    (hash ^ word)
        .wrapping_mul(0x85eb_ca6b)
        .rotate_left(13)
        .wrapping_mul(5)
        .wrapping_add(0xe654_6b64)
}

/// Lets every bit of the hash depend on all of the words.
#[inline(always)]
const fn finish(mut hash: u32) -> u32 {
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x85eb_ca6b);
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests;
