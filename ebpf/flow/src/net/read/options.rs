//! IPv4 options.

use crate::net::traits::Packet;

/// RFC 791, 3.1.
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const LOOSE_SOURCE_ROUTE: u8 = 131;
const STRICT_SOURCE_ROUTE: u8 = 137;
/// Bytes of options, at most: an IPv4 header has 60, 20 of which are fixed.
const MOST: u64 = 40;

/// What there is to say of options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Options {
    /// They are whole, and none is a source route.
    Whole,
    /// They contradict their lengths, or what is there.
    Malformed,
    /// One is a source route.
    SourceRouted,
}

/// Reads options, which are in `[at, end)`. For [`Packet::options`], which is what others call.
#[inline(always)]
pub fn options<P: Packet>(packet: P, mut at: u32, end: u32) -> Options {
    for _ in 0..MOST {
        if at >= end {
            return Options::Whole;
        }
        let Some(kind) = packet.byte(at) else {
            return Options::Malformed;
        };
        match kind {
            END => return Options::Whole,
            NO_OPERATION => at += 1,
            _ => {
                if end - at < 2 {
                    return Options::Malformed;
                }
                let Some(length) = packet.byte(at + 1).map(u32::from) else {
                    return Options::Malformed;
                };
                if length < 2 || length > end - at {
                    return Options::Malformed;
                }
                if kind == LOOSE_SOURCE_ROUTE || kind == STRICT_SOURCE_ROUTE {
                    return Options::SourceRouted;
                }
                at += length;
            }
        }
    }
    Options::Whole
}
