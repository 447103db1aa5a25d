//! Translation of an ICMP error, and of the packet that it quotes.

use lb_abi::{SCTP, UDP};
use lb_flow::net::{Outcome, Packet as _, PacketState, checksum::Difference};

use super::{
    rewrite,
    skb::{Checksum, Skb, Summed},
};

/// Where the checksum of ICMP is.
const CHECKSUM: u32 = 2;

/// Writes the new tuples to an error and to what it quotes. `hop`: it goes on by a route that was looked up here. For
/// [`super::global::translate_error`], which is what others call.
#[inline(always)]
pub(super) fn translate(skb: Skb, work: &PacketState, hop: bool) -> Result<(), Outcome> {
    let mut changed = quoted_transport(skb, work)?;
    changed = quoted_addresses(skb, work, changed)?;
    let at = work.headers.l4 + CHECKSUM;
    skb.l4_checksum(at, changed.folded(), Checksum::Plain, false)?;
    if !work.headers.v4 {
        let difference = Difference::NONE.addresses(&work.headers.tuple, &work.to);
        skb.l4_checksum(at, difference.folded(), Checksum::Plain, true)?;
    }
    rewrite::addresses(skb, &work.headers, work.to.source, work.to.destination, hop)
}

/// Writes quoted ports, and the quoted checksum of UDP or TCP where it is quoted.
#[inline(always)]
fn quoted_transport(skb: Skb, work: &PacketState) -> Result<Difference, Outcome> {
    let (quoted, old, new) = (&work.quoted, &work.quoted.tuple, &work.quoted_to);
    let ([a, b], [c, d]) = (new.source_port.0, new.destination_port.0);
    let at = quoted.checksum();
    let covered = old.protocol != SCTP && !quoted.unsummed && at + 2 <= quoted.end;
    let checksum = if covered { skb.half(at) } else { None };
    skb.store(quoted.l4, &[u32::from_ne_bytes([a, b, c, d])], Summed::Same)?;
    let changed = Difference::NONE.ports(old, new);
    let Some(checksum) = checksum else {
        return Ok(changed);
    };
    let mut follows = changed.addresses(old, new).apply(checksum);
    if old.protocol == UDP && follows == [0, 0] {
        follows = [0xff, 0xff];
    }
    skb.store_half(at, follows, Summed::Same)?;
    Ok(changed.half(checksum, follows))
}

/// Writes quoted addresses, and the quoted checksum of the IPv4 header.
#[inline(always)]
fn quoted_addresses(skb: Skb, work: &PacketState, changed: Difference) -> Result<Difference, Outcome> {
    let (quoted, old, new) = (&work.quoted, &work.quoted.tuple, &work.quoted_to);
    let addresses = Difference::NONE.addresses(old, new);
    let changed = changed.addresses(old, new);
    if !quoted.v4 {
        let ([a, b, c, d], [e, f, g, h]) = (new.source.words(), new.destination.words());
        skb.store(quoted.l3 + 8, &[a, b, c, d, e, f, g, h], Summed::Same)?;
        return Ok(changed);
    }
    let checksum = quoted.header_checksum();
    let follows = addresses.apply(checksum);
    let (source, destination) = (new.source.last4(), new.destination.last4());
    skb.store_half(quoted.l3 + 10, follows, Summed::Same)?;
    let words = [u32::from_ne_bytes(source), u32::from_ne_bytes(destination)];
    skb.store(quoted.l3 + 12, &words, Summed::Same)?;
    Ok(changed.half(checksum, follows))
}
