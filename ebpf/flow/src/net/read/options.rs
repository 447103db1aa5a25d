//! IPv4 options.

use super::Unread;
use crate::net::view::Packet;

/// RFC 791, 3.1.
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const LOOSE_SOURCE_ROUTE: u8 = 131;
const STRICT_SOURCE_ROUTE: u8 = 137;
/// Bytes of options, at most: an IPv4 header has 60, 20 of which are fixed.
const MOST: u64 = 40;

/// Checks that options are whole, and that none is a source route. They are in `[at, end)`.
#[inline(never)]
pub(super) fn check<P: Packet>(packet: P, mut at: u32, end: u32) -> Result<(), Unread> {
    for _ in 0..MOST {
        if at >= end {
            return Ok(());
        }
        match packet.byte(at).ok_or(Unread::Malformed)? {
            END => return Ok(()),
            NO_OPERATION => at += 1,
            kind => {
                if end - at < 2 {
                    return Err(Unread::Malformed);
                }
                let length = u32::from(packet.byte(at + 1).ok_or(Unread::Malformed)?);
                if length < 2 || length > end - at {
                    return Err(Unread::Malformed);
                }
                if kind == LOOSE_SOURCE_ROUTE || kind == STRICT_SOURCE_ROUTE {
                    return Err(Unread::SourceRouted);
                }
                at += length;
            }
        }
    }
    Ok(())
}
