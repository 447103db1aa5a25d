//! Connections that go around a service: to a backend, at the backend's own address.
//!
//! To the backend they look like those that were translated. Where a flow that has ended has the same client, port and
//! backend, its entries would take the new connection's answers for its own, and send them to the client in the name of
//! a frontend that this connection has not asked for. Where that flow goes on, a socket of the node gets another port.

use lb_abi::{Tuple, UDP, flow_flags};

use crate::net::{
    Hook, Outcome, conntrack,
    packet_state::{Fragment, PacketState},
    read,
    read::Part,
    route,
    source_ports::{self, SourcePort},
    traits::{Entry, Node, Packet},
};

/// Reads the rest of a packet whose IP addresses show that it is no service's. It goes on as it came.
#[inline(always)]
pub(super) fn decide<P: Packet, N: Node>(packet: P, node: N, work: &mut PacketState) -> Outcome {
    let read = match read::internet(packet, &mut work.headers, Part::Packet) {
        Ok(()) => read::transport(packet, &mut work.headers, Part::Packet),
        Err(unread) => Err(unread),
    };
    if read.is_ok() {
        end(node, work);
    }
    Outcome::Passed
}

/// Ends the flow that has the tuple of a connection that begins, if it is being closed anyway.
#[inline(always)]
pub(super) fn end<N: Node>(node: N, work: &mut PacketState) {
    if !conntrack::starts(work.headers.tuple.protocol, work.headers.signals) {
        return;
    }
    work.reply_key = work.headers.tuple.inverse();
    let Some(reply) = node.flow(&work.reply_key) else {
        return;
    };
    if reply.flags() & flow_flags::REPLY == 0 {
        return;
    }
    work.forward_key = reply.to().inverse();
    if let Some(forward) = node.flow(&work.forward_key)
        && forward.to() == work.headers.tuple
        && conntrack::closing(forward.seen())
    {
        node.remove(&work.reply_key);
        node.remove(&work.forward_key);
    }
}

/// Whether a socket of the node begins with a backend from a port that a live flow of another client to that backend has, because the
/// flow has the node's address. [`PacketState`] then says what is to be stored: the same tuple, from another port.
#[inline(always)]
pub(super) fn shares_port<N: Node>(hook: Hook, node: N, work: &mut PacketState) -> bool {
    let tuple = &work.headers.tuple;
    let begins = match tuple.protocol {
        UDP => !matches!(work.headers.fragment, Fragment::Later),
        protocol => conntrack::starts(protocol, work.headers.signals),
    };
    if hook.inbound() || !begins || !node.is_locally_generated() {
        return false;
    }
    work.reply_key = tuple.inverse();
    let Some(there) = node.flow(&work.reply_key) else {
        return false;
    };
    if there.flags() & flow_flags::REPLY == 0
        || there.to().destination == tuple.source
        || !route::is_node(node, tuple.source)
        || source_ports::is_over(node, there, tuple.protocol, node.now())
    {
        return false;
    }
    work.to = work.headers.tuple;
    (work.service, work.backend) = (0, 0);
    work.source_port = SourcePort::AllocatedIfFree;
    true
}

/// Whether a flow of these flags leads to the very backend that its client asks for, from another port: as [`shares_port`] has it.
#[inline(always)]
pub(super) fn leads_on(flags: u32, from: &Tuple, to: &Tuple) -> bool {
    flags & flow_flags::OTHER_PORT != 0
        && from.destination == to.destination
        && from.destination_port == to.destination_port
}
