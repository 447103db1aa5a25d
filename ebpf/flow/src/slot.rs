//! Choice of a slot.

/// Maps a random number to a slot below `slots`, by multiplication and shift (Lemire, "Fast Random Integer
/// Generation in an Interval", 2019): no division, and no branch on the number.
///
/// For a uniform `random` no two slots' probabilities differ by more than 2⁻³². `slots` of 0 gives 0.
#[inline(always)]
pub const fn slot(random: u32, slots: u32) -> u32 {
    // `as`: u64::from is not const; both widen, and the product's upper half fits into 32 bits.
    ((random as u64 * slots as u64) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Miri takes a thousand times as long: it sees fewer numbers.
    const SPARSE: usize = if cfg!(miri) { 257 } else { 1 };

    #[test]
    fn every_random_number_gives_a_slot_that_exists() {
        for slots in [1, 2, 3, 7, 10, 1000, 65_535, 262_144, u32::MAX] {
            for random in [
                0,
                1,
                2,
                0x5555_5555,
                0x7fff_ffff,
                0x8000_0000,
                0xaaaa_aaaa,
                u32::MAX - 1,
                u32::MAX,
            ] {
                assert!(slot(random, slots) < slots, "slot({random}, {slots})");
            }
        }
    }

    #[test]
    fn no_slots_is_not_a_panic() {
        assert_eq!(slot(u32::MAX, 0), 0);
    }

    #[test]
    fn the_first_and_the_last_slot_are_reached() {
        for slots in [1, 2, 3, 10, 1000] {
            assert_eq!(slot(0, slots), 0);
            assert_eq!(slot(u32::MAX, slots), slots - 1);
        }
    }

    #[test]
    fn larger_random_numbers_give_no_smaller_slots() {
        let mut last = 0;
        for random in (0..=u32::MAX).step_by(65_521 * SPARSE) {
            let chosen = slot(random, 1000);
            assert!(chosen >= last, "slot({random}, 1000) = {chosen} after {last}");
            last = chosen;
        }
    }

    #[test]
    fn slots_are_hit_evenly() {
        // Evenly spaced numbers stand for uniform ones; the step is prime, so that it is in no ratio with 2³².
        let mut hits = [0_u32; 10];
        for random in (0..=u32::MAX).step_by(4093 * SPARSE) {
            hits[slot(random, 10) as usize] += 1;
        }
        let (least, most) = (hits.iter().min(), hits.iter().max());
        let (Some(&least), Some(&most)) = (least, most) else {
            panic!("ten slots")
        };
        assert!(most - least <= 1, "{hits:?}");
    }
}
