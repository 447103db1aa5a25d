//! Limits of tests' waits: a limit ends a test that hangs, and never measures a machine.

use std::{env, time::Duration};

/// Limit of a test's wait for an event. Most events take less than a second; beside other tests, builds and busy loops
/// on two processors they took up to fifty times as long.
pub const LIMIT: Duration = Duration::from_secs(180);
/// Limit of a whole test with a process of its own, [`scaled`]: several times [`LIMIT`].
pub const WHOLE: Duration = Duration::from_secs(900);
/// Factor for limits of programs that tests start, if they have an option for that: the ratio of [`LIMIT`] to thirty
/// seconds, the usual limit on a machine with less load.
pub const TIMES: u32 = 6;

/// Variable with a factor for limits, a whole number; 1 by default. `cargo xtask kernels` sets it, because its
/// processors may be emulated.
const SCALE: &str = "PLUMBLINE_TEST_TIMEOUT_SCALE";

/// A limit, multiplied by `PLUMBLINE_TEST_TIMEOUT_SCALE`.
///
/// # Panics
/// The variable is not a whole number from 1 to 100.
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
