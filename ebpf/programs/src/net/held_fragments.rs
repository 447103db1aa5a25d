//! Fragments that come before the first of their datagram: kept in HELD, frame by frame, and let in once more after it.

use lb_abi::{HELD_BYTES, Held};
use lb_flow::{
    Tables as _,
    net::{MOST_HELD, Packet as _, PacketState},
};

use super::{Scratch, global, skb::Skb};
use crate::maps::{HELD, Maps};

/// Keeps the packet; `false`: it is too long, or there is no room.
#[inline(always)]
pub(super) fn hold(skb: Skb, scratch: &mut Scratch) -> bool {
    let Some(maps) = Maps::live() else { return false };
    let Held {
        length,
        seconds,
        bytes,
    } = &mut scratch.held;
    *length = skb.length();
    *seconds = maps.now();
    if *length as usize > HELD_BYTES || !skb.load(*length, bytes) {
        return false;
    }
    HELD.insert(scratch.work.held, &scratch.held, 0).is_ok()
}

/// Has the packet come in once more, and then so many that wait for it, in its place.
#[inline(always)]
pub(super) fn release(skb: Skb, held: u32) {
    skb.come_in_again();
    for number in 0..MOST_HELD {
        if number >= held {
            break;
        }
        global::release_one(skb, number);
    }
}

/// One of them, if it is still there.
#[inline(always)]
pub(super) fn release_one(skb: Skb, work: &mut PacketState, number: u32) {
    work.held.number = number;
    let Some(frame) = HELD.get_ptr(work.held) else {
        return;
    };
    // SAFETY: the element is this datagram's until it is removed below; should the kernel give it to another one, as the map is full
    // and this one is the oldest, a fragment of that comes in twice.
    let frame = unsafe { &*frame };
    let length = frame.length;
    if skb.set_length(length).is_ok() && skb.store_frame(&frame.bytes, length).is_ok() {
        skb.come_in_again();
    }
    let _ = HELD.remove(work.held);
}
