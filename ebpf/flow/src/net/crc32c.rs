//! The checksum of SCTP (RFC 9260, appendix A), by difference.
//!
//! CRC32c is linear over GF(2), up to a constant that depends on the length alone: the checksums of two messages of
//! one length differ by the plain remainder of the messages' difference. Where they differ in the first four bytes
//! only (the ports), that is the remainder of those four, shifted by the zeros that follow: a multiplication by
//! x^(8 × zeros), made of the powers x^(8 × 2^k), which are known beforehand.

/// The Castagnoli polynomial, least significant coefficient last, as everything here: bit 31 is x⁰.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// Bits of the length of what follows: of an IP packet there are less than 2¹⁶ bytes.
const POWERS: usize = 16;
/// x^(8 × 2^k).
const SHIFT: [u32; POWERS] = shifts();

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

/// A remainder, and zeros behind it. No branches on bits, here and below: a verifier would follow both ways at each.
#[inline(never)]
fn zeros(mut remainder: u32, bytes: u32) -> u32 {
    for (power, &shift) in SHIFT.iter().enumerate() {
        let chosen = 0_u32.wrapping_sub(bytes >> power & 1);
        remainder ^= (multiply(remainder, shift) ^ remainder) & chosen;
    }
    remainder
}

/// The product modulo the polynomial.
#[inline(always)]
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

const fn shifts() -> [u32; POWERS] {
    let mut table = [0; POWERS];
    // x⁸.
    let mut power = 1 << 23;
    let mut index = 0;
    while index < POWERS {
        table[index] = power;
        power = multiply(power, power);
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests;
