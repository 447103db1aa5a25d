//! Global functions (Linux 5.6): the verifier checks each of them once for a program, and not again for every path that leads to
//! it. Their arguments are numbers and the context; everything else is in the scratch.

use aya_ebpf::bindings::__sk_buff;
use lb_flow::net::{self, Answer, Attempt, Hook, New, Options, Outcome};

use super::{Action, Moved, REDIRECT, SHOT, answers, held_fragments, icmp, node::Local, scratch, skb::Skb};
use crate::maps::Maps;

/// [`net::open`], and [`net::create`] if it leaves that: one after the other, so that they do not need the stack at once.
#[inline(always)]
pub(super) fn open(hook: Hook, skb: Skb) {
    let new = net_open(skb.argument(), number(hook));
    if new != 0 {
        net_create(skb.argument(), number(hook), new);
    }
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

/// [`super::translate`].
#[inline(always)]
pub(super) fn translate(hook: Hook, skb: Skb) -> Moved {
    match net_translate(skb.argument(), number(hook)) {
        ON => Moved::On,
        ELSEWHERE => Moved::Elsewhere,
        _ => Moved::Not,
    }
}

/// [`icmp::translate`].
#[inline(always)]
pub(super) fn translate_error(skb: Skb, hop: bool) -> Result<(), Outcome> {
    if net_translate_error(skb.argument(), hop.into()) != 0 {
        return Ok(());
    }
    Err(scratch().map_or(Outcome::DroppedRewrite, |scratch| scratch.outcome))
}

/// [`net::attempts`].
#[inline(always)]
pub(super) fn attempts(skb: Skb) -> Attempt {
    attempt_of(net_attempts(skb.argument()))
}

/// [`net::attempt`].
#[inline(always)]
pub(super) fn attempt(skb: Skb) -> Attempt {
    attempt_of(net_attempt(skb.argument()))
}

#[inline(always)]
const fn attempt_of(number: u32) -> Attempt {
    match number {
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

/// [`held_fragments::release_one`].
#[inline(always)]
pub(super) fn release_one(skb: Skb, number: u32) {
    net_release_one(skb.argument(), number);
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

const DIRECT: u32 = New::Direct as u32;

const ON: u32 = Moved::On as u32;
const ELSEWHERE: u32 = Moved::Elsewhere as u32;

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
    match net::open(hook_of(hook), node, &mut scratch.work) {
        Ok(outcome) => {
            scratch.outcome = outcome;
            0
        }
        Err(new) => new as u32,
    }
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn net_create(context: *mut __sk_buff, hook: u32, new: u32) -> u32 {
    let (Some(maps), Some(scratch)) = (Maps::live(), scratch()) else {
        return 0;
    };
    let node = Local::new(maps, Skb::new(context));
    let new = if new == DIRECT { New::Direct } else { New::Service };
    scratch.outcome = net::create(hook_of(hook), node, &mut scratch.work, new);
    0
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn net_translate(context: *mut __sk_buff, hook: u32) -> u32 {
    super::translate(hook_of(hook), Skb::new(context)) as u32
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn net_translate_error(context: *mut __sk_buff, hop: u32) -> u32 {
    let Some(scratch) = scratch() else { return 0 };
    match icmp::translate(Skb::new(context), &scratch.work, hop != 0) {
        Ok(()) => 1,
        Err(outcome) => {
            scratch.outcome = outcome;
            0
        }
    }
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
extern "C" fn net_attempts(context: *mut __sk_buff) -> u32 {
    let (Some(maps), Some(scratch)) = (Maps::live(), scratch()) else {
        return Attempt::Full as u32;
    };
    net::attempts(Local::new(maps, Skb::new(context)), &mut scratch.work) as u32
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
        held_fragments::release(Skb::new(context), scratch.work.held.number);
    }
    0
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn net_release_one(context: *mut __sk_buff, number: u32) -> u32 {
    if let Some(scratch) = scratch() {
        held_fragments::release_one(Skb::new(context), &mut scratch.work, number);
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
