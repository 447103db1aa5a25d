//! Translation of a packet: addresses, ports, hop limit, and the checksums that cover them.
//!
//! What is written was read before, so that only the kernel's lack of memory can stop it half-way; the packet is then
//! dropped.

use lb_abi::{Address, SCTP, UDP};
use lb_flow::net::{Fragment, Headers, Outcome, Packet as _, PacketState, checksum::Difference, crc32c};

use super::skb::{Checksum, Refused, Skb, Summed};

impl From<Refused> for Outcome {
    #[inline(always)]
    fn from(_: Refused) -> Self {
        Self::DroppedRewrite
    }
}

/// Writes the new tuple to a packet. `hop`: it goes on by a route that was looked up here.
#[inline(always)]
pub(super) fn translate(skb: Skb, work: &PacketState, hop: bool) -> Result<(), Outcome> {
    let PacketState { headers, to, .. } = work;
    let ports =
        [headers.tuple.source_port, headers.tuple.destination_port] != [to.source_port, to.destination_port];
    if matches!(headers.fragment, Fragment::Later) {
        if ports && headers.tuple.protocol == SCTP {
            return Err(Outcome::DroppedFragment);
        }
        return addresses(skb, headers, to.source, to.destination, hop);
    }
    if headers.tuple.protocol == SCTP {
        if ports {
            sctp(skb, work)?;
        }
        return addresses(skb, headers, to.source, to.destination, hop);
    }
    if headers.unsummed {
        // No checksum stands against the ports that are written.
        if ports {
            skb.store(headers.l4, &[words(work)], Summed::Follows)?;
        }
        return addresses(skb, headers, to.source, to.destination, hop);
    }
    let kind = match headers.tuple.protocol {
        UDP if headers.v4 => Checksum::Optional,
        UDP => Checksum::Never0,
        _ => Checksum::Plain,
    };
    let difference = Difference::NONE.addresses(&headers.tuple, to).folded();
    skb.l4_checksum(headers.checksum(), difference, kind, true)?;
    if !ports {
        return addresses(skb, headers, to.source, to.destination, hop);
    }
    let difference = Difference::NONE.ports(&headers.tuple, to).folded();
    skb.l4_checksum(headers.checksum(), difference, kind, false)?;
    if headers.v4 && headers.l4 == headers.l3 + 20 {
        // Addresses and ports lie side by side.
        let [third, source, destination] = end_of_v4(headers, to.source, to.destination, hop);
        skb.store(
            headers.l3 + 8,
            &[third, source, destination, words(work)],
            Summed::Same,
        )?;
        return Ok(());
    }
    skb.store(headers.l4, &[words(work)], Summed::Same)?;
    addresses(skb, headers, to.source, to.destination, hop)
}

/// The new ports, as they lie in the packet.
#[inline(always)]
fn words(work: &PacketState) -> u32 {
    let ([a, b], [c, d]) = (work.to.source_port.0, work.to.destination_port.0);
    u32::from_ne_bytes([a, b, c, d])
}

/// Writes the addresses of the IP header, its hop limit and its checksum.
#[inline(always)]
pub(super) fn addresses(
    skb: Skb,
    headers: &Headers,
    source: Address,
    destination: Address,
    hop: bool,
) -> Result<(), Outcome> {
    if headers.v4 {
        let end = end_of_v4(headers, source, destination, hop);
        skb.store(headers.l3 + 8, &end, Summed::Same)?;
        return Ok(());
    }
    // No checksum of this header stands against what is written to it; and that of TCP or UDP, which does, is counted
    // by the helper as if one did.
    let ([a, b, c, d], [e, f, g, h]) = (source.words(), destination.words());
    skb.store(headers.l3 + 8, &[a, b, c, d, e, f, g, h], Summed::Follows)?;
    if hop {
        skb.store_byte(
            headers.l3 + 7,
            headers.hop_limit().wrapping_sub(1),
            Summed::Follows,
        )?;
    }
    Ok(())
}

/// The last twelve bytes of the fixed part of an IPv4 header: from its TTL on.
#[inline(always)]
fn end_of_v4(headers: &Headers, source: Address, destination: Address, hop: bool) -> [u32; 3] {
    let [.., third] = headers.fixed;
    let [ttl, protocol, high, low] = third.to_ne_bytes();
    let new_ttl = if hop { ttl.wrapping_sub(1) } else { ttl };
    let (old_source, old_destination) = (headers.tuple.source.last4(), headers.tuple.destination.last4());
    let (source, destination) = (
        u32::from_ne_bytes(source.last4()),
        u32::from_ne_bytes(destination.last4()),
    );
    let [high, low] = Difference::NONE
        .word(u32::from_ne_bytes(old_source), source)
        .word(u32::from_ne_bytes(old_destination), destination)
        .half([ttl, protocol], [new_ttl, protocol])
        .apply([high, low]);
    [
        u32::from_ne_bytes([new_ttl, protocol, high, low]),
        source,
        destination,
    ]
}

/// Writes the ports of SCTP, and the checksum. It covers all of the datagram: of a fragment it can't be known.
#[inline(never)]
fn sctp(skb: Skb, work: &PacketState) -> Result<(), Outcome> {
    let headers = &work.headers;
    if !matches!(headers.fragment, Fragment::Whole) {
        return Err(Outcome::DroppedFragment);
    }
    let Some([old, _, field]) = skb.words::<3>(headers.l4) else {
        return Err(Outcome::DroppedRewrite);
    };
    let new = words(work);
    skb.store(headers.l4, &[new], Summed::Follows)?;
    if field == 0 {
        // The device computes it.
        return Ok(());
    }
    let length = headers.end.wrapping_sub(headers.l4);
    let field = crc32c::ports_changed(field.to_ne_bytes(), old.to_ne_bytes(), new.to_ne_bytes(), length);
    skb.store(headers.l4 + 8, &[u32::from_ne_bytes(field)], Summed::Follows)?;
    Ok(())
}
