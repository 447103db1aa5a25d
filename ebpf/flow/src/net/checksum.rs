//! Internet checksums: by difference for what is translated, in full for what is answered.

use lb_abi::{Address, Tuple};

/// What a change adds to a sum: RFC 1624, equation 3, for any number of words before it is folded.
///
/// In the machine's byte order, as the kernel sums: the sum of bytes swapped is the swapped sum (RFC 1071, 2 (B)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Difference(u64);

impl Difference {
    /// Nothing has changed.
    pub const NONE: Self = Self(0);

    /// And four bytes, at an offset that is even.
    #[inline(always)]
    #[must_use]
    pub const fn word(self, old: u32, new: u32) -> Self {
        // `as`: u64::from is not const; it widens.
        Self(self.0 + !old as u64 + new as u64)
    }

    /// And two bytes, at an offset that is even.
    #[inline(always)]
    #[must_use]
    pub const fn half(self, old: [u8; 2], new: [u8; 2]) -> Self {
        Self(self.0 + !u16::from_ne_bytes(old) as u64 + u16::from_ne_bytes(new) as u64)
    }

    /// And both addresses of a packet.
    #[inline(always)]
    #[must_use]
    pub const fn addresses(self, old: &Tuple, new: &Tuple) -> Self {
        self.address(old.source, new.source)
            .address(old.destination, new.destination)
    }

    /// And both ports of a packet.
    #[inline(always)]
    #[must_use]
    pub const fn ports(self, old: &Tuple, new: &Tuple) -> Self {
        self.half(old.source_port.0, new.source_port.0)
            .half(old.destination_port.0, new.destination_port.0)
    }

    #[inline(always)]
    const fn address(self, old: Address, new: Address) -> Self {
        let [a, b, c, d] = old.words();
        let [e, f, g, h] = new.words();
        if old.is_v4() && new.is_v4() {
            return self.word(d, h);
        }
        self.word(a, e).word(b, f).word(c, g).word(d, h)
    }

    /// In 32 bits, as the kernel takes it.
    #[inline(always)]
    pub const fn folded(self) -> u32 {
        let sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        // `as`: the carry of the first addition is 1 at most, so that the second has none.
        ((sum & 0xffff_ffff) + (sum >> 32)) as u32
    }

    /// The checksum of what has changed, from the one before.
    #[inline(always)]
    pub const fn apply(self, checksum: [u8; 2]) -> [u8; 2] {
        (!fold(self.0 + !u16::from_ne_bytes(checksum) as u64)).to_ne_bytes()
    }
}

/// The checksum of words and of `more` (such as a pseudo-header).
#[inline(always)]
pub fn full(words: &[u32], more: Sum) -> [u8; 2] {
    words.iter().fold(more, |sum, &word| sum.and(word)).complemented()
}

/// A sum that is not complemented yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Of nothing.
    pub const NONE: Self = Self(0);

    /// Of a pseudo-header (RFC 9293, 3.1; RFC 8200, 8.1).
    #[inline(always)]
    pub const fn pseudo_header(source: Address, destination: Address, protocol: u8, length: u16) -> Self {
        let protocol = u16::from_ne_bytes([0, protocol]);
        let length = u16::from_ne_bytes(length.to_be_bytes());
        Self(Self::address(source) + Self::address(destination) + protocol as u64 + length as u64)
    }

    /// And four bytes, at an offset that is even.
    #[inline(always)]
    #[must_use]
    pub const fn and(self, word: u32) -> Self {
        Self(self.0 + word as u64)
    }

    /// What a checksum field holds.
    #[inline(always)]
    pub const fn complemented(self) -> [u8; 2] {
        (!fold(self.0)).to_ne_bytes()
    }

    #[inline(always)]
    const fn address(address: Address) -> u64 {
        let [a, b, c, d] = address.words();
        if address.is_v4() {
            d as u64
        } else {
            a as u64 + b as u64 + c as u64 + d as u64
        }
    }

    /// What a checksum field holds that a device is to complete: the sum so far, not complemented.
    #[inline(always)]
    pub const fn partial(self) -> [u8; 2] {
        fold(self.0).to_ne_bytes()
    }
}

/// In 16 bits, with carries added at the other end. Of a sum that is not 0, it is not 0.
#[inline(always)]
const fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    // `as`: of 0x1_ffff at most there was one carry, and of 0x1_0000 there is one more.
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests;
