//! Where a packet goes that is translated.

use lb_abi::{Address, address_flags, flow_flags};

use crate::net::{
    Hook, Outcome, direct_to_backend,
    packet_state::{Delivery, PacketState},
    traits::Node,
};

/// Decides where a packet goes as [`PacketState::to`], by the flags of its flow's entry, and whether it may: one that has come to its
/// last hop is answered, before anything is stored or written.
#[inline(always)]
pub(super) fn decide<N: Node>(
    hook: Hook,
    node: N,
    work: &mut PacketState,
    flags: u32,
) -> Result<(), Outcome> {
    let reply = flags & flow_flags::REPLY != 0;
    let snat = flags & flow_flags::SNAT != 0;
    // The stack takes nothing from its own address; and what leaves it was routed to the frontend, if that is not the backend itself.
    let routed = snat && hook.inbound()
        || !reply
            && matches!(hook, Hook::NodeEgress)
            && !direct_to_backend::leads_on(flags, &work.headers.tuple, &work.to);
    let renamed = reply && hook.inbound() && work.to.source != work.headers.tuple.source;
    work.delivery = if (routed || renamed) && is_own(node, work.to.destination) {
        // At the loopback device alone the stack takes something in from its own address, and whatever way leads to the address that
        // an answer is from (`rp_filter`).
        if renamed || !hook.inbound() || is_own(node, work.to.source) {
            Delivery::Inward
        } else {
            Delivery::PassedOn
        }
    } else if routed {
        Delivery::Routed
    } else {
        Delivery::PassedOn
    };
    if matches!(work.delivery, Delivery::Routed) && hook.inbound() && work.headers.hop_limit() <= 1 {
        return Err(Outcome::TimeExceeded);
    }
    Ok(())
}

/// Whether an address is the node's own.
#[inline(always)]
pub(super) fn is_own<N: Node>(node: N, address: Address) -> bool {
    address == node.own_address(address.is_v4()) || is_node(node, address)
}

/// Whether ADDRESSES has an address as NODE.
#[inline(always)]
pub(super) fn is_node<N: Node>(node: N, address: Address) -> bool {
    matches!(node.address(&address), Some(flags) if flags & address_flags::NODE != 0)
}
