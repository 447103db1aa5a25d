//! ICMP: errors about packets of connections are translated with what they quote.

use lb_abi::{UDP, flow_flags};

use crate::net::{
    Hook, Outcome, drop_if_only_services,
    packet_state::{Fragment, PacketState, Transport},
    read,
    read::{Part, Unread},
    route,
    traits::{Entry, Node, Packet},
};

/// Of an ICMP message, before what it quotes.
const HEADER: u32 = 8;

/// Decides on a message of the family's ICMP.
#[inline(always)]
pub(super) fn decide<P: Packet, N: Node>(hook: Hook, packet: P, node: N, work: &mut PacketState) -> Outcome {
    let kind = work.headers.signals;
    if !work.headers.v4 && matches!(kind, 133..=137) {
        // Neighbour discovery.
        return Outcome::Passed;
    }
    if is_error(work.headers.v4, kind) {
        match related(hook, packet, node, work) {
            Ok(Some(outcome)) | Err(outcome) => return outcome,
            Ok(None) => {}
        }
    }
    drop_if_only_services(hook, node, work, Outcome::DroppedIcmp)
}

/// Whether a type of ICMP is about another packet, which it quotes.
#[inline(always)]
const fn is_error(v4: bool, kind: u8) -> bool {
    if v4 {
        matches!(kind, 3 | 11 | 12)
    } else {
        matches!(kind, 1..=4)
    }
}

/// `None`: about no packet of a connection.
#[inline(always)]
fn related<P: Packet, N: Node>(
    hook: Hook,
    packet: P,
    node: N,
    work: &mut PacketState,
) -> Result<Option<Outcome>, Outcome> {
    if quoted(packet, work).is_err() {
        return Ok(None);
    }
    work.related_key = work.quoted.tuple.inverse();
    let Some(entry) = node.flow(&work.related_key) else {
        return Ok(None);
    };
    if work.headers.tuple.destination != work.quoted.tuple.source || entry.flags() & flow_flags::OWN != 0 {
        return Ok(None);
    }
    let to = entry.to();
    work.quoted_to = to.inverse();
    work.to = work.headers.tuple;
    work.to.destination = to.destination;
    if work.headers.tuple.source == work.related_key.source {
        work.to.source = to.source;
    }
    let flags = entry.flags() & flow_flags::ALL;
    if flags & flow_flags::REPLY == 0 && is_refused(packet, work) {
        refused(node, work);
    }
    route::decide(hook, node, work, flags)?;
    Ok(Some(Outcome::Related))
}

/// Whether a client reports that it has no socket for a datagram.
#[inline(always)]
fn is_refused<P: Packet>(packet: P, work: &PacketState) -> bool {
    let [kind, code] = if work.headers.v4 { [3, 3] } else { [1, 4] };
    work.quoted.tuple.protocol == UDP
        && work.headers.tuple.source == work.related_key.source
        && work.headers.signals == kind
        && packet.byte(work.headers.l4 + 1) == Some(code)
}

/// Ends the flow whose answers its client refuses. Its socket may have gone; or it talks to the backend at the backend's
/// own address now, and expects that of the answers.
#[inline(always)]
fn refused<N: Node>(node: N, work: &mut PacketState) {
    // What the quoted answer was before it was translated: the key of the reply's entry.
    if let Some(reply) = node.flow(&work.quoted_to)
        && reply.to() == work.quoted.tuple
    {
        node.remove(&work.quoted_to);
    }
    node.remove(&work.related_key);
}

/// Reads what a message quotes.
#[inline(always)]
fn quoted<P: Packet>(packet: P, work: &mut PacketState) -> Result<(), Unread> {
    let at = work.headers.l4 + HEADER;
    let quoted = &mut work.quoted;
    quoted.end = work.headers.end;
    if work.headers.v4 {
        read::v4(packet, at, quoted)?;
    } else {
        read::v6(packet, at, quoted)?;
    }
    read::internet(packet, quoted, Part::Quote)?;
    if matches!(quoted.fragment, Fragment::Later) {
        return Err(Unread::Malformed);
    }
    read::transport(packet, quoted, Part::Quote)?;
    if matches!(quoted.transport, Transport::Ports) {
        Ok(())
    } else {
        Err(Unread::Malformed)
    }
}
