//! Atomic operations on map values, which other processors and the agent see at once.
//!
//! `core::sync::atomic` offers them only where a target has all of them; the instruction set has these since Linux
//! 5.12 (addition since ever).

use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_or, atomic_xadd};

/// Adds to a number.
///
/// # Safety
/// The pointer is to eight aligned bytes of a map value.
#[inline(always)]
pub unsafe fn add(to: *mut u64, number: u64) {
    // SAFETY: the caller's promise.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(to, number) };
}

/// Sets bits.
///
/// # Safety
/// The pointer is to four aligned bytes of a map value.
#[inline(always)]
pub unsafe fn or(to: *mut u32, bits: u32) {
    // SAFETY: the caller's promise.
    unsafe { atomic_or::<u32, u32, { AtomicOrdering::Relaxed }>(to, bits) };
}

/// Replaces `old` with `new`; `true`: it was `old`, and no other processor has replaced it.
///
/// # Safety
/// The pointer is to eight aligned bytes of a map value.
#[inline(always)]
pub unsafe fn replace(at: *mut u64, old: u64, new: u64) -> bool {
    // SAFETY: the caller's promise.
    let (_, replaced) =
        unsafe { atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(at, old, new) };
    replaced
}
