//! IPv6 extension headers.

use super::Unread;
use crate::net::{
    packet_state::{Fragment, Headers},
    traits::Packet,
};

/// RFC 8200, 4; RFC 4302.
pub(super) const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;

/// How many are read, at most.
const MOST: u64 = 6;

/// Hop-by-hop options that are looked at, at most; the stack takes no more than 8 (`net.ipv6.max_hbh_opts_number`).
const MOST_OPTIONS: u64 = 16;
const PAD1: u8 = 0;
const JUMBO_PAYLOAD: u8 = 0xc2;

/// Whether this is an extension header, wherever it is.
#[inline(always)]
pub(super) const fn is_one(protocol: u8) -> bool {
    matches!(
        protocol,
        ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS
    )
}

/// Goes through them: moves [`Headers::l4`] and the tuple's protocol to what follows the last one, or a fragment header
/// after which nothing can be read.
#[inline(never)]
pub(super) fn skip<P: Packet>(packet: P, headers: &mut Headers, is_gso: bool) -> Result<(), Unread> {
    let mut kind = headers.tuple.protocol;
    let mut at = headers.l4;
    for index in 0..=MOST {
        if !(is_one(kind) || kind == HOP_BY_HOP && index == 0) {
            headers.tuple.protocol = kind;
            headers.l4 = at;
            return Ok(());
        }
        if index == MOST || headers.end - at < 8 {
            return Err(Unread::Malformed);
        }
        let [first, second] = packet.words::<2>(at).ok_or(Unread::Malformed)?;
        let [next, units, third, fourth] = first.to_ne_bytes();
        let length = match kind {
            FRAGMENT => 8,
            AUTHENTICATION => (u32::from(units) + 2) * 4,
            _ => (u32::from(units) + 1) * 8,
        };
        if length > headers.end - at {
            return Err(Unread::Malformed);
        }
        match kind {
            HOP_BY_HOP if !is_gso && packet.has_jumbo(at + 2, at + length) => return Err(Unread::Malformed),
            ROUTING if third == 0 || fourth != 0 => return Err(Unread::SourceRouted),
            FRAGMENT => {
                let offset = u16::from_be_bytes([third, fourth]);
                // An atomic fragment is a whole packet (RFC 6946).
                if offset & !6 != 0 {
                    headers.fragment_id = second.to_ne_bytes();
                    headers.fragment = Fragment::First;
                }
                if offset >> 3 != 0 {
                    headers.fragment = Fragment::Later;
                    headers.tuple.protocol = next;
                    headers.l4 = at + length;
                    return Ok(());
                }
            }
            _ => {}
        }
        kind = next;
        at += length;
    }
    Err(Unread::Malformed)
}

/// Whether there is a jumbo payload length (RFC 2675) among the hop-by-hop options in `[at, end)`. For
/// [`Packet::has_jumbo`], which is what others call.
#[inline(always)]
pub fn has_jumbo<P: Packet>(packet: P, mut at: u32, end: u32) -> bool {
    for _ in 0..MOST_OPTIONS {
        if at >= end {
            return false;
        }
        match packet.byte(at) {
            None => return false,
            Some(JUMBO_PAYLOAD) => return true,
            Some(PAD1) => at += 1,
            Some(_) => {
                let Some(length) = packet.byte(at + 1) else {
                    return false;
                };
                at += 2 + u32::from(length);
            }
        }
    }
    false
}
