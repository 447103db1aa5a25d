//! How long tests wait for what must come: a limit is there to end a test that hangs, never to measure a machine.

use std::{env, time::Duration};

/// How long a test waits for what must come. What it waits for mostly comes within a second; beside other tests, builds and
/// busy loops on two processors it was seen to take fifty times as long.
pub const LIMIT: Duration = Duration::from_secs(180);
/// How long the whole of a test may take that has a process of its own, [`scaled`]: several times [`LIMIT`].
pub const WHOLE: Duration = Duration::from_secs(900);
/// By how much limits of programs are lengthened that are started for a test, where they can be told: as [`LIMIT`] to thirty
/// seconds, which most of them have on a machine that is not as busy.
pub const TIMES: u32 = 6;

/// By how much limits are lengthened, as a whole number; 1 if it is not set. `cargo xtask kernels` sets it, whose processors
/// may be emulated.
const SCALE: &str = "PLUMBLINE_TEST_TIMEOUT_SCALE";

/// A limit, lengthened as `PLUMBLINE_TEST_TIMEOUT_SCALE` says.
///
/// # Panics
/// The variable is no whole number from 1 to 100.
#[must_use]
pub fn scaled(limit: Duration) -> Duration {
    limit * scale(env::var(SCALE).ok().as_deref())
}

fn scale(said: Option<&str>) -> u32 {
    let Some(said) = said else { return 1 };
    match said.parse() {
        Ok(scale @ 1..=100) => scale,
        _ => panic!("{SCALE} is a whole number from 1 to 100, not {said:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_is_a_whole_number_and_1_if_nobody_says_it() {
        assert_eq!([None, Some("1"), Some("10")].map(scale), [1, 1, 10]);
    }

    #[test]
    #[should_panic(expected = "a whole number from 1 to 100, not \"0\"")]
    fn no_limit_is_shortened() {
        scale(Some("0"));
    }
}
