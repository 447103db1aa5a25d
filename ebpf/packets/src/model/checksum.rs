//! The Internet checksum (RFC 1071) and its change (RFC 1624), and SCTP's CRC32c (RFC 9260, appendix A), bit by bit.

/// Sum of 16-bit words with the carries added in; an odd last byte is the upper half of a word.
pub(super) fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u32::from(u16::from_be_bytes([pair[0], low]));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("carries were added in")
}

/// Of all these bytes: what belongs into their checksum field, if they have zero there.
pub(super) fn internet(bytes: &[u8]) -> u16 {
    !sum(bytes)
}

/// What a checksum becomes when `old` turns to `new`: RFC 1624, equation 3.
pub(super) fn changed(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    !add(add(!checksum, !sum(old)), sum(new))
}

/// Addition in ones' complement.
fn add(a: u16, b: u16) -> u16 {
    let sum = u32::from(a) + u32::from(b);
    u16::try_from((sum & 0xffff) + (sum >> 16)).expect("one carry at most")
}

/// CRC32c as it stands in an SCTP packet: least significant byte first.
pub(super) fn crc32c(bytes: &[u8]) -> [u8; 4] {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ 0x82f6_3b78
            } else {
                crc >> 1
            };
        }
    }
    (!crc).to_le_bytes()
}
