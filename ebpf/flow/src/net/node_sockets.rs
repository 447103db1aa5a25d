//! The node's own sockets at node ports. A socket may have a port from before it was a node port, or the kernel has picked it as a
//! source port: its packets stay its own.

use lb_abi::{Address, Flow, FrontendKey, TCP, UDP, flow_flags};

use crate::net::{
    Hook,
    conntrack::{ACK, RST, SYN},
    packet_state::{Fragment, PacketState},
    route, source_ports,
    traits::{Entry, Node, Socket},
};

/// Whether a packet for a frontend at the node's own address is one of a connection that a local socket has. (What leaves for
/// that address is at the loopback device, and as near to the sockets as what comes in.)
#[inline(always)]
pub(super) fn receives<N: Node>(node: N, work: &PacketState) -> bool {
    match work.headers.tuple.protocol {
        // A SYN is for the node port. Of a listening socket, the stack resets what it does not know.
        TCP => {
            work.headers.signals & (SYN | ACK | RST) != SYN
                && !matches!(node.socket(&work.headers.tuple), Socket::None)
        }
        UDP => matches!(node.socket(&work.headers.tuple), Socket::Connected),
        _ => false,
    }
}

/// Notes what a local UDP socket sends from a node port to a peer that is no service, or a pod that netfilter masquerades by that
/// port: the answers are its own. (A connected socket is found by a look-up; others, only by the peers that they have sent to.)
///
/// An answer that was on its way when the port became a node port has been taken for a client's datagram. What is sent next ends that
/// flow, whose client would be the Service's for as long as both go on. The Service's own answers, which these programs have
/// translated, do not come here: they are marked.
#[inline(always)]
pub(super) fn note<N: Node>(hook: Hook, node: N, work: &mut PacketState) {
    let tuple = &work.headers.tuple;
    if hook.inbound() || tuple.protocol != UDP || matches!(work.headers.fragment, Fragment::Later) {
        return;
    }
    let node_port = FrontendKey {
        address: if work.headers.v4 {
            Address::UNSPECIFIED_V4
        } else {
            Address::UNSPECIFIED_V6
        },
        port: tuple.source_port,
        protocol: UDP,
        pad: 0,
    };
    if node.frontend(&node_port).is_none() || !route::is_node(node, tuple.source) {
        return;
    }
    let now = node.now();
    work.forward_key = tuple.inverse();
    // Looked for first: to write what is there already would cost another connection its entry, where the map is full.
    let there = node.flow(&work.forward_key);
    if let Some(there) = there {
        if there.flags() & flow_flags::OWN != 0 {
            return there.note(0, now);
        }
        if !source_ports::is_over(node, there, UDP, now) {
            if there.flags() & flow_flags::REPLY != 0 {
                return;
            }
            work.reply_key = there.to().inverse();
            if let Some(reply) = node.flow(&work.reply_key)
                && reply.to() == *tuple
            {
                node.remove(&work.reply_key);
            }
        }
    }
    work.flow = Flow {
        to: work.forward_key,
        seen: 0,
        last_seen: now,
        service: 0,
        backend: 0,
        flags: flow_flags::OWN,
        pad: 0,
        claim: super::claim(node),
    };
    if there.is_some() {
        node.store(&work.forward_key, &work.flow);
    } else {
        node.insert(&work.forward_key, &work.flow);
    }
}
