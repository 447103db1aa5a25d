//! Connections that go around a service: to a backend, at the backend's own address.
//!
//! To the backend they look like those that were translated. Where a flow that has ended has the same client, port and
//! backend, its entries would take the new connection's answers for its own, and send them to the client in the name of
//! a frontend that this connection has not asked for.

use lb_abi::flow_flags;

use crate::net::{
    Outcome, conntrack,
    packet_state::PacketState,
    read,
    read::Part,
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

/// Ends the flow that has the tuple of a connection that begins, if it is being closed anyway. (A flow's own packets
/// come by here, too, at the hooks that see them when they are translated: a connection that begins is not being
/// closed.)
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
