//! Times of one process, comparable with each other and with the log of any process on the same host.

use std::{
    sync::OnceLock,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// Microseconds since the Unix epoch.
///
/// The wall clock is read once; later times add what the monotonic clock has counted, so that a step of the wall clock
/// cannot make an attempt end before it began.
pub(crate) fn now_us() -> u64 {
    static ANCHOR: OnceLock<(u64, Instant)> = OnceLock::new();
    let (wall, monotonic) = ANCHOR.get_or_init(|| {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (
            u64::try_from(wall.as_micros()).unwrap_or(u64::MAX),
            Instant::now(),
        )
    });
    wall.saturating_add(u64::try_from(monotonic.elapsed().as_micros()).unwrap_or(u64::MAX))
}
