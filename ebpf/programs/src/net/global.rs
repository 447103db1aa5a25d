//! Global functions (Linux 5.6): the verifier checks each of them once for a program, and not again for every path that leads to
//! it. Their arguments are numbers and the context; everything else is in the scratch.

use aya_ebpf::bindings::__sk_buff;
use lb_flow::net::{self, Answer, Attempt, Hook, Options};

use super::{Action, REDIRECT, SHOT, answers, held_fragments, node::Local, scratch, skb::Skb};
use crate::maps::Maps;

/// [`net::open`].
#[inline(always)]
pub(super) fn open(hook: Hook, skb: Skb) {
    net_open(skb.argument(), number(hook));
}

/// [`net::around`].
#[inline(always)]
pub(super) fn around(skb: Skb) {
    net_around(skb.argument());
}

/// [`net::icmp`].
#[inline(always)]
pub(super) fn icmp(hook: Hook, skb: Skb) {
    net_icmp(skb.argument(), number(hook));
}

/// [`answers::send`].
#[inline(always)]
pub(super) fn answer(hook: Hook, skb: Skb, kind: Answer) -> Action {
    if net_answer(skb.argument(), number(hook), kind as u32) == 0 {
        SHOT
    } else {
        REDIRECT
    }
}

/// [`net::attempt`].
#[inline(always)]
pub(super) fn attempt(skb: Skb) -> Attempt {
    match net_attempt(skb.argument()) {
        STORED => Attempt::Stored,
        TAKEN => Attempt::Taken,
        EXHAUSTED => Attempt::Exhausted,
        _ => Attempt::Full,
    }
}

/// [`held_fragments::hold`].
#[inline(always)]
pub(super) fn hold(skb: Skb) -> bool {
    net_hold(skb.argument()) != 0
}

/// [`held_fragments::release`].
#[inline(always)]
pub(super) fn release(skb: Skb) {
    net_release(skb.argument());
}

/// [`net::options`].
#[inline(always)]
pub(super) fn options(skb: Skb, at: u32, end: u32) -> Options {
    match net_options(skb.argument(), at, end) {
        WHOLE => Options::Whole,
        SOURCE_ROUTED => Options::SourceRouted,
        _ => Options::Malformed,
    }
}

/// [`net::has_jumbo`].
#[inline(always)]
pub(super) fn has_jumbo(skb: Skb, at: u32, end: u32) -> bool {
    net_has_jumbo(skb.argument(), at, end) != 0
}

const WHOLE: u32 = Options::Whole as u32;
const SOURCE_ROUTED: u32 = Options::SourceRouted as u32;

const STORED: u32 = Attempt::Stored as u32;
const TAKEN: u32 = Attempt::Taken as u32;
const EXHAUSTED: u32 = Attempt::Exhausted as u32;

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn net_open(context: *mut __sk_buff, hook: u32) -> u32 {
    let (Some(maps), Some(scratch)) = (Maps::live(), scratch()) else {
        return 0;
    };
    let node = Local::new(maps, Skb::new(context));
    scratch.outcome = net::open(hook_of(hook), node, &mut scratch.work);
    0
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn net_around(context: *mut __sk_buff) -> u32 {
    let (Some(maps), Some(scratch)) = (Maps::live(), scratch()) else {
        return 0;
    };
    let skb = Skb::new(context);
    scratch.outcome = net::around(skb, Local::new(maps, skb), &mut scratch.work);
    0
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn net_attempt(context: *mut __sk_buff) -> u32 {
    let (Some(maps), Some(scratch)) = (Maps::live(), scratch()) else {
        return Attempt::Full as u32;
    };
    net::attempt(Local::new(maps, Skb::new(context)), &mut scratch.work) as u32
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn net_hold(context: *mut __sk_buff) -> u32 {
    match scratch() {
        Some(scratch) => held_fragments::hold(Skb::new(context), scratch).into(),
        None => 0,
    }
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn net_release(context: *mut __sk_buff) -> u32 {
    if let Some(scratch) = scratch() {
        held_fragments::release(Skb::new(context), &mut scratch.work);
    }
    0
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn net_icmp(context: *mut __sk_buff, hook: u32) -> u32 {
    let (Some(maps), Some(scratch)) = (Maps::live(), scratch()) else {
        return 0;
    };
    let skb = Skb::new(context);
    scratch.outcome = net::icmp(hook_of(hook), skb, Local::new(maps, skb), &mut scratch.work);
    0
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn net_answer(context: *mut __sk_buff, hook: u32, kind: u32) -> u32 {
    let (Some(maps), Some(scratch)) = (Maps::live(), scratch()) else {
        return 0;
    };
    let kind = match kind {
        REJECT => Answer::Reject,
        TIME_EXCEEDED => Answer::TimeExceeded,
        _ => Answer::TooBig,
    };
    let skb = Skb::new(context);
    answers::send(hook_of(hook), skb, Local::new(maps, skb), scratch, kind).into()
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn net_options(context: *mut __sk_buff, at: u32, end: u32) -> u32 {
    net::options(Skb::new(context), at, end) as u32
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn net_has_jumbo(context: *mut __sk_buff, at: u32, end: u32) -> u32 {
    net::has_jumbo(Skb::new(context), at, end).into()
}

const REJECT: u32 = Answer::Reject as u32;
const TIME_EXCEEDED: u32 = Answer::TimeExceeded as u32;

#[inline(always)]
const fn number(hook: Hook) -> u32 {
    match hook {
        Hook::NodeIngress => 0,
        Hook::NodeEgress => 1,
        Hook::PodIngress => 2,
        Hook::PodEgress => 3,
    }
}

#[inline(always)]
const fn hook_of(number: u32) -> Hook {
    match number {
        0 => Hook::NodeIngress,
        1 => Hook::NodeEgress,
        2 => Hook::PodIngress,
        _ => Hook::PodEgress,
    }
}
