//! The packet programs: `lb_flow::net` decides, and this module changes and sends the packet.
//!
//! ```text
//! skb::Skb, node::Local ─▶ lb_flow::net::decide ─▶ Disposition ─┬─ Leave ─────────────────────────────▶ NEXT
//!                                                               ├─ Translate ─▶ route ─▶ rewrite, icmp ─▶ NEXT, REDIRECT
//!                                                               ├─ Answer ────▶ answer ──────────────▶ REDIRECT
//!                                                               └─ Drop ──────────────────────────────▶ SHOT
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `skb.rs` | the only access to the packet |
//! | `node.rs` | the maps and sockets, as decisions see them |
//! | `route.rs` | the route of what does not go on by itself, and its sending |
//! | `rewrite.rs` | translation of a packet |
//! | `icmp.rs` | translation of what an ICMP error quotes |
//! | `answers.rs` | the packet becomes its own answer |
//! | `held_fragments.rs` | fragments that wait for the first of their datagram |
//! | `global.rs` | functions that the verifier checks by themselves |

mod answers;
mod global;
mod held_fragments;
mod icmp;
mod node;
mod rewrite;
mod route;
mod skb;

use aya_ebpf::{btf_maps::PerCpuArray, macros::btf_map, programs::TcContext};
use lb_abi::Held;
use lb_flow::net::{Delivery, Disposition, Hook, Outcome, PacketState, Rest, decide};

use self::{
    node::Local,
    route::{LOOPBACK, Route},
    skb::Skb,
};
use crate::maps::{Maps, count, count_connection, count_packet};

/// What a program of these hooks returns.
pub type Action = i32;

/// `TC_ACT_UNSPEC`, which TCX has as `TCX_NEXT`: the packet goes on, to the next program or filter at the device (another
/// one's policy, say) and then to the stack. `TC_ACT_OK` would keep it from those.
const NEXT: Action = -1;
/// `TC_ACT_SHOT`: it does not.
const SHOT: Action = 2;
/// `TC_ACT_REDIRECT`: it goes to the device that a helper has noted.
const REDIRECT: Action = 7;

/// What does not fit on a program's stack of 512 bytes.
#[repr(C)]
struct Scratch {
    work: PacketState,
    route: Route,
    /// What a function of `global` decided.
    outcome: Outcome,
    /// A fragment that is about to be held.
    held: Held,
}

/// One for each processor: these programs are not preempted by each other, as bottom halves are off where they run.
#[btf_map]
static SCRATCH: PerCpuArray<Scratch, 1> = PerCpuArray::new();

/// What enters the node from the network.
#[inline(always)]
pub fn node_ingress(context: &TcContext) -> Action {
    run(Hook::NodeIngress, context)
}

/// What leaves the node for the network.
#[inline(always)]
pub fn node_egress(context: &TcContext) -> Action {
    run(Hook::NodeEgress, context)
}

/// What enters the node from a pod.
#[inline(always)]
pub fn pod_ingress(context: &TcContext) -> Action {
    run(Hook::PodIngress, context)
}

/// What leaves the node for a pod.
#[inline(always)]
pub fn pod_egress(context: &TcContext) -> Action {
    run(Hook::PodEgress, context)
}

// The parts of a packet's way that follow each other are not inlined, so that they share the stack, and return numbers:
// outcomes are in the scratch.

#[inline(always)]
fn run(hook: Hook, context: &TcContext) -> Action {
    let skb = Skb::new(context.skb.skb);
    if hook.inbound() && skb.is_others() {
        // The stack drops it, later. A frame that a switch has flooded is answered by the host that it is for.
        count(Outcome::Passed.counter());
        return NEXT;
    }
    if skb.is_translated() {
        if !hook.inbound() {
            // It leaves, as was decided before.
            count(Outcome::Passed.counter());
            return NEXT;
        }
        skb.unmark();
    }
    match begin(hook, skb) {
        Next::Leave => return NEXT,
        Next::Act => {}
        Next::Open => global::open(hook, skb),
        Next::Icmp => global::icmp(hook, skb),
        Next::Around => global::around(skb),
    }
    let action = act(hook, skb);
    if let Some(scratch) = scratch() {
        count(scratch.outcome.counter());
    }
    action
}

/// What follows on [`begin`].
#[derive(Clone, Copy)]
#[repr(u32)]
enum Next {
    /// Nothing.
    Leave,
    /// Doing what was decided.
    Act,
    /// [`global::open`].
    Open,
    /// [`global::icmp`].
    Icmp,
    /// [`global::around`].
    Around,
}

/// Decides, as far as most packets need.
#[inline(never)]
fn begin(hook: Hook, skb: Skb) -> Next {
    let (Some(maps), Some(scratch)) = (Maps::live(), scratch()) else {
        return Next::Leave;
    };
    match decide(hook, skb, Local::new(maps, skb), &mut scratch.work) {
        Ok(Outcome::Passed) => {
            // Most packets.
            count(Outcome::Passed.counter());
            Next::Leave
        }
        Ok(outcome) => {
            scratch.outcome = outcome;
            Next::Act
        }
        Err(Rest::Open) => Next::Open,
        Err(Rest::Icmp) => Next::Icmp,
        Err(Rest::Around) => Next::Around,
    }
}

/// This processor's scratch. A reference is used only until the next call of this function.
#[inline(always)]
fn scratch() -> Option<&'static mut Scratch> {
    // SAFETY: the pointer is to this processor's element of an array, whose elements stay; no other program uses it while one
    // of these hooks runs, and that one uses only the reference that it got last. It was zero at first, which is a value of every
    // type in there, and only these programs write it.
    SCRATCH.get_ptr_mut(0).map(|scratch| unsafe { &mut *scratch })
}

/// Does what was decided. What has become of the packet then may be something else, if it can't be done.
#[inline(always)]
fn act(hook: Hook, skb: Skb) -> Action {
    let Some(disposition) = disposition() else {
        return SHOT;
    };
    if let Disposition::Translate = disposition {
        match global::translate(hook, skb) {
            Moved::On => return NEXT,
            Moved::Elsewhere => return REDIRECT,
            Moved::Not => {}
        }
    }
    match self::disposition() {
        Some(Disposition::Leave) => NEXT,
        Some(Disposition::Answer(kind)) => global::answer(hook, skb, kind),
        Some(Disposition::Drop | Disposition::Translate) | None => SHOT,
    }
}

#[inline(always)]
fn disposition() -> Option<Disposition> {
    scratch().map(|scratch| scratch.outcome.disposition())
}

/// What came of a translation.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Moved {
    /// The packet goes on.
    On,
    /// It goes to the device that a helper has noted.
    Elsewhere,
    /// It was not sent, and [`Scratch::outcome`] is what becomes of it.
    Not,
}

/// Translates a packet, and sends it on. For [`global::translate`], which is what others call.
#[inline(always)]
fn translate(hook: Hook, skb: Skb) -> Moved {
    let Some(scratch) = scratch() else {
        return Moved::Not;
    };
    match translated(hook, skb, scratch) {
        Ok(moved) => moved,
        Err(outcome) => {
            scratch.outcome = outcome;
            Moved::Not
        }
    }
}

#[inline(always)]
fn translated(hook: Hook, skb: Skb, scratch: &mut Scratch) -> Result<Moved, Outcome> {
    let routed = matches!(scratch.work.delivery, Delivery::Routed);
    if routed {
        route::find(hook, skb, scratch)?;
    }
    let hop = routed && hook.inbound();
    if matches!(scratch.outcome, Outcome::Related) {
        global::translate_error(skb, hop)?;
    } else {
        rewrite::translate(skb, &scratch.work, hop)?;
        let (service, backend) = (scratch.work.service, scratch.work.backend);
        if matches!(scratch.outcome, Outcome::Opened) {
            count_connection(service, backend);
        }
        count_packet(service, backend, scratch.work.headers.bytes());
    }
    skb.mark_translated();
    match scratch.work.delivery {
        Delivery::PassedOn => return Ok(Moved::On),
        // It goes to the node's sockets from there.
        Delivery::Inward if skb.device() == LOOPBACK => return Ok(Moved::On),
        Delivery::Inward => route::come_in(skb)?,
        Delivery::Routed => route::send(skb, &scratch.route)?,
    }
    Ok(Moved::Elsewhere)
}
