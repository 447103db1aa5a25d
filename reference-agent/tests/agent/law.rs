//! Law 1: for every history of events, what has been written equals the plan from scratch.
//!
//! `cargo xtask soak agent` plays the same histories by the million.

pub(crate) mod history;

use proptest::prelude::*;
use reference_agent::plan::Selection;

use self::history::{hold, steps};

/// Quarters of one property, side by side: as one test it takes longer than all others of this program together.
macro_rules! quarters {
    ($($name:ident)*) => {
        proptest! {
            // PROPTEST_CASES may ask for more.
            #![proptest_config(ProptestConfig::with_cases(4_752 / 4))]

            $(
                #[test]
                fn $name(steps in steps(40)) {
                    hold(Selection::Random, steps);
                }
            )*
        }
    };
}

mod what_is_written_is_the_plan_from_scratch {
    use super::*;

    quarters!(first second third fourth);
}

proptest! {
    // A table has up to a thousand slots, each of which is looked at after every write that counts: fewer of these.
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn what_is_written_is_the_plan_from_scratch_with_tables_too(steps in steps(30)) {
        hold(Selection::Maglev, steps);
    }
}
