//! The checksum of SCTP (RFC 9260, appendix A), by difference.
//!
//! CRC32c is linear over GF(2), up to a constant that depends on the length alone: the checksums of two messages of
//! one length differ by the plain remainder of the messages' difference. Where they differ in the first four bytes
//! only (the ports), that is the remainder of those four, shifted by the zeros that follow: a multiplication by
//! x^(8 × zeros), made of those by the powers x^(8 × 2^k). What they make of each half byte of a remainder is known
//! beforehand, so that a verifier has some hundred steps to follow rather than one for each pair of bits.

/// The Castagnoli polynomial, least significant coefficient last, as everything here: bit 31 is x⁰.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// Bits of the length of what follows: of an IP packet there are less than 2¹⁶ bytes.
const POWERS: usize = 16;
/// Half bytes of a remainder.
const HALVES: usize = 8;
/// The product of x^(8 × 2^k) with a half byte, by k, the half byte's place from the last one on, and its value.
static SHIFTED: [[[u32; 16]; HALVES]; POWERS] = shifted();

/// The checksum field of an SCTP packet of `length` bytes whose ports were `old` and are `new`, from the field before.
///
/// # Guarantees
/// A field that was right is right, and one that was wrong is wrong by the same bits.
#[inline(always)]
pub fn ports_changed(checksum: [u8; 4], old: [u8; 4], new: [u8; 4], length: u32) -> [u8; 4] {
    let difference = u32::from_le_bytes(old) ^ u32::from_le_bytes(new);
    // The remainder of the four bytes themselves is their product with x³², which is four zeros behind them.
    let remainder = zeros(difference, length);
    (u32::from_le_bytes(checksum) ^ remainder).to_le_bytes()
}

/// A remainder, and zeros behind it. No branches on bits: a verifier would follow both ways at each.
#[inline(never)]
fn zeros(mut remainder: u32, bytes: u32) -> u32 {
    for (power, products) in SHIFTED.iter().enumerate() {
        let chosen = 0_u32.wrapping_sub(bytes >> power & 1);
        let mut shifted = 0;
        for (place, of) in products.iter().enumerate() {
            // `as`: 0 to 15.
            shifted ^= of[(remainder >> (4 * place) & 15) as usize];
        }
        remainder ^= (shifted ^ remainder) & chosen;
    }
    remainder
}

/// The product modulo the polynomial.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        product ^= b & 0_u32.wrapping_sub(a >> bit & 1);
        b = b >> 1 ^ POLYNOMIAL & 0_u32.wrapping_sub(b & 1);
    }
    product
}

const fn shifted() -> [[[u32; 16]; HALVES]; POWERS] {
    let mut table = [[[0; 16]; HALVES]; POWERS];
    // x⁸.
    let mut shift = 1 << 23;
    let mut power = 0;
    while power < POWERS {
        let mut place = 0;
        while place < HALVES {
            let mut half = 0;
            while half < 16 {
                table[power][place][half] = multiply((half as u32) << (4 * place), shift);
                half += 1;
            }
            place += 1;
        }
        shift = multiply(shift, shift);
        power += 1;
    }
    table
}

#[cfg(test)]
mod tests;
