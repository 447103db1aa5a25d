//! Answers: the packet is overwritten with its answer and sent back.

use lb_abi::TCP;
use lb_flow::net::{Answer, Hook, Outcome, Packet as _, PacketState, reject, reject::Silence};

use super::{
    Scratch,
    node::Local,
    skb::{Checksum, INGRESS, Refused, Skb},
};

/// Overwrites a packet with its answer, and sends that back to where the packet came from; `false`: it is dropped instead.
#[inline(always)]
pub(super) fn send(hook: Hook, skb: Skb, node: Local, scratch: &mut Scratch, answer: Answer) -> bool {
    match reject::admits(hook, skb, node, &mut scratch.work) {
        Err(Silence::Defined) => return false,
        Err(Silence::Limited) => {
            scratch.outcome = Outcome::DroppedRejectLimit;
            return false;
        }
        Ok(()) => {}
    }
    if become_answer(skb, node, &mut scratch.work, answer).is_err() {
        scratch.outcome = Outcome::DroppedRewrite;
        return false;
    }
    skb.redirect(skb.device(), if hook.inbound() { 0 } else { INGRESS });
    true
}

#[inline(always)]
fn become_answer(skb: Skb, node: Local, work: &mut PacketState, answer: Answer) -> Result<(), Refused> {
    let partial = is_partial(skb, work)?;
    let length = reject::compose(answer, skb, node, work, partial).ok_or(Refused)?;
    let at = work.headers.l3;
    skb.set_length(at + length)?;
    skb.store_answer(at, &work.answer, length)?;
    skb.swap_macs()
}

/// Whether the device is to complete the checksum of a TCP packet: the kernel then leaves it alone when ports change.
#[inline(always)]
fn is_partial(skb: Skb, work: &PacketState) -> Result<bool, Refused> {
    if work.headers.tuple.protocol != TCP {
        return Ok(false);
    }
    let at = work.headers.checksum();
    let before = skb.half(at).ok_or(Refused)?;
    skb.l4_checksum(at, 1, Checksum::Plain, false)?;
    let after = skb.half(at).ok_or(Refused)?;
    Ok(before == after)
}
