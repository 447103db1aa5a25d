//! What happens to packets: `lb_flow::net` decides, and here it is done.
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
//! | `answer.rs` | the packet becomes its own answer |
//! | `held.rs` | fragments that wait for the first of their datagram |
//! | `apart.rs` | what is verified by itself |

mod answer;
mod apart;
mod held;
mod icmp;
mod node;
mod rewrite;
mod route;
mod skb;

use aya_ebpf::{btf_maps::PerCpuArray, macros::btf_map, programs::TcContext};
use lb_abi::Held;
use lb_flow::net::{Disposition, Hook, Outcome, Rest, Way, Work, decide};

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
/// `TC_ACT_REDIRECT`: it goes where a helper was told.
const REDIRECT: Action = 7;

/// What does not fit on a program's stack of 512 bytes.
#[repr(C)]
struct Scratch {
    work: Work,
    route: Route,
    /// What a function of `apart` came to.
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
        // The stack drops it, later. What a switch has flooded is answered by whom it is for.
        count(Outcome::Passed.counter());
        return NEXT;
    }
    match begin(hook, skb) {
        Next::Leave => return NEXT,
        Next::Act => {}
        Next::Open => apart::open(hook, skb),
        Next::Icmp => apart::icmp(hook, skb),
        Next::Around => apart::around(skb),
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
    /// [`apart::open`].
    Open,
    /// [`apart::icmp`].
    Icmp,
    /// [`apart::around`].
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

/// This processor's scratch. Whoever asks for it is the only one to use it, until somebody else asks.
#[inline(always)]
fn scratch() -> Option<&'static mut Scratch> {
    // SAFETY: the pointer is to this processor's element of an array, whose elements stay; nobody else uses it while a
    // program of these hooks runs, and of that only who asked last. It was zero at first, which is a value of every
    // type in there, and only we write it.
    SCRATCH.get_ptr_mut(0).map(|scratch| unsafe { &mut *scratch })
}

/// Does what was decided. What has become of the packet then may be something else, if it can't be done.
#[inline(always)]
fn act(hook: Hook, skb: Skb) -> Action {
    let Some(disposition) = disposition() else {
        return SHOT;
    };
    if let Disposition::Translate = disposition {
        match translate(hook, skb) {
            Moved::On => return NEXT,
            Moved::Elsewhere => return REDIRECT,
            Moved::Not => {}
        }
    }
    match self::disposition() {
        Some(Disposition::Leave) => NEXT,
        Some(Disposition::Answer(kind)) => apart::answer(hook, skb, kind),
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
    /// It goes where a helper was told.
    Elsewhere,
    /// It stays, and [`Scratch::outcome`] says what becomes of it.
    Not,
}

/// Translates a packet, and sends it on.
#[inline(never)]
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
    let routed = matches!(scratch.work.way, Way::Routed);
    if routed {
        route::find(hook, skb, scratch)?;
    }
    let hop = routed && hook.inbound();
    if matches!(scratch.outcome, Outcome::Related) {
        icmp::translate(skb, &scratch.work, hop)?;
    } else {
        rewrite::translate(skb, &scratch.work, hop)?;
        let (service, backend) = (scratch.work.service, scratch.work.backend);
        if matches!(scratch.outcome, Outcome::Opened) {
            count_connection(service, backend);
        }
        count_packet(service, backend, scratch.work.headers.bytes());
    }
    match scratch.work.way {
        Way::On => return Ok(Moved::On),
        // It goes to the node's sockets from there.
        Way::Local if skb.device() == LOOPBACK => return Ok(Moved::On),
        Way::Local => route::come_in(skb)?,
        Way::Routed => route::send(skb, &scratch.route)?,
    }
    Ok(Moved::Elsewhere)
}
