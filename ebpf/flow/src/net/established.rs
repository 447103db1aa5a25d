//! Packets of connections that are known.

use lb_abi::{Flow, UDP, flow_flags};

use crate::net::{
    Hook, Outcome, conntrack, direct_to_backend,
    packet_state::{Old, PacketState},
    route,
    traits::{Entry, Node},
};

/// There is no flow that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unknown;

/// What becomes of a packet by its flow.
#[inline(always)]
pub(super) fn decide<N: Node>(hook: Hook, node: N, work: &mut PacketState) -> Result<Outcome, Unknown> {
    work.old = Old::None;
    let Some(entry) = node.flow(&work.headers.tuple) else {
        return Err(Unknown);
    };
    let flags = entry.flags();
    if flags & flow_flags::OWN != 0 {
        own(node, work, entry)
    } else if flags & flow_flags::REPLY != 0 {
        reply(hook, node, work, entry)
    } else if hook.opens() || direct_to_backend::leads_on(flags, &work.headers.tuple, &entry.to()) {
        forward(hook, node, work, entry)
    } else {
        Err(Unknown)
    }
}

/// The answer to what one of the node's own sockets has sent.
#[inline(always)]
fn own<N: Node>(node: N, work: &mut PacketState, entry: N::Entry) -> Result<Outcome, Unknown> {
    let now = node.now();
    if conntrack::is_over(work.headers.tuple.protocol, entry.seen(), entry.last_seen(), now) {
        work.old_reply_key = entry.to().inverse();
        work.old = Old::Replaced;
        return Err(Unknown);
    }
    entry.note(work.headers.shows(true), now);
    Ok(Outcome::Passed)
}

#[inline(always)]
fn forward<N: Node>(
    hook: Hook,
    node: N,
    work: &mut PacketState,
    entry: N::Entry,
) -> Result<Outcome, Unknown> {
    let now = node.now();
    let tuple = &work.headers.tuple;
    let protocol = tuple.protocol;
    let seen = entry.seen();
    work.to = entry.to();
    work.reply_key = work.to.inverse();
    if conntrack::is_over(protocol, seen, entry.last_seen(), now) || is_replaced(node, work, entry, seen, now)
    {
        work.old = Old::Replaced;
        work.old_reply_key = work.reply_key;
        return Err(Unknown);
    }
    let leads_back = match node.flow(&work.reply_key) {
        Some(reply) => Some(reply.to().inverse() == work.headers.tuple),
        None => None,
    };
    if leads_back == Some(false) {
        node.remove(&work.headers.tuple);
        return Err(Unknown);
    }
    if let Err(outcome) = route::decide(hook, node, work, entry.flags()) {
        return Ok(outcome);
    }
    if leads_back.is_none() {
        write_again(node, work, entry, now, flow_flags::REPLY);
    }
    entry.note(work.headers.shows(false), now);
    (work.service, work.backend) = (entry.service(), entry.backend());
    Ok(Outcome::Forwarded)
}

/// Whether a client's packet means a new connection, of the ports of an old one, or one that it asks for again; or whether what
/// it sends to is gone.
#[inline(always)]
fn is_replaced<N: Node>(node: N, work: &PacketState, entry: N::Entry, seen: u32, now: u32) -> bool {
    let protocol = work.headers.tuple.protocol;
    if conntrack::starts(protocol, work.headers.signals) {
        return conntrack::closing(seen)
            || conntrack::is_unanswered(seen, entry.last_seen(), now)
            || is_gone(node, work, entry);
    }
    protocol == UDP && is_gone(node, work, entry)
}

/// Whether a flow sends to what is no backend any more, and not because its client does.
#[inline(always)]
fn is_gone<N: Node>(node: N, work: &PacketState, entry: N::Entry) -> bool {
    let to = &work.to;
    if direct_to_backend::leads_on(entry.flags(), &work.headers.tuple, to) {
        return false;
    }
    match node.backend(entry.backend()) {
        None => true,
        Some(backend) => {
            backend.address != to.destination
                || backend.port != to.destination_port
                || backend.protocol != to.protocol
        }
    }
}

#[inline(always)]
fn reply<N: Node>(hook: Hook, node: N, work: &mut PacketState, entry: N::Entry) -> Result<Outcome, Unknown> {
    let now = node.now();
    work.to = entry.to();
    // Only the client's own address is looked for among those of services; where that is another machine's that is also some
    // Service's external one, the answer is translated where it leaves, as all are. Sent from the node's address, the stack
    // would take nothing in.
    if hook.inbound() && entry.flags() & flow_flags::SNAT == 0 && !route::is_own(node, work.to.destination) {
        return Ok(Outcome::Passed);
    }
    work.forward_key = work.to.inverse();
    let shows = work.headers.shows(true);
    let forward = node.flow(&work.forward_key);
    if let Some(forward) = forward
        && (forward.to().inverse() != work.headers.tuple
            || conntrack::is_over(
                work.forward_key.protocol,
                forward.seen(),
                forward.last_seen(),
                now,
            ))
    {
        return Err(Unknown);
    }
    if let Err(outcome) = route::decide(hook, node, work, entry.flags()) {
        return Ok(outcome);
    }
    match forward {
        Some(forward) => forward.note(shows, now),
        None => {
            write_again(node, work, entry, now, 0);
            // What the packet shows is noted where it counts: in the entry just written.
            if let Some(forward) = node.flow(&work.forward_key) {
                forward.note(shows, now);
            }
        }
    }
    (work.service, work.backend) = (entry.service(), entry.backend());
    Ok(Outcome::Replied)
}

/// Writes the missing entry of a flow from the one that is left: the reply's where `direction` is [`flow_flags::REPLY`], the
/// forward one where it is 0. If there is no room, the next packet tries again.
#[inline(never)]
fn write_again<N: Node>(node: N, work: &mut PacketState, entry: N::Entry, now: u32, direction: u32) {
    work.flow = Flow {
        to: work.headers.tuple.inverse(),
        seen: entry.seen(),
        last_seen: now,
        service: entry.service(),
        backend: entry.backend(),
        flags: entry.flags() & !flow_flags::REPLY | direction,
        pad: 0,
        claim: super::claim(node),
    };
    if direction == flow_flags::REPLY {
        node.insert(&work.reply_key, &work.flow);
    } else {
        node.insert(&work.forward_key, &work.flow);
    }
}
