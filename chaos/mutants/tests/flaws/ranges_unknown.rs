//! The mutant gets no Service range; the production planner does.

use mutants::ranges_unknown::RangesUnknown;
use reference_agent::{
    control::{DesiredState, Planner},
    endpoint_address::Range,
    model::{Event, Kind},
};

#[test]
fn no_range_is_heard_of() {
    fn received(mut desired: impl DesiredState) -> usize {
        for kind in Kind::ALL {
            desired.apply(Event::Synced(kind));
        }
        desired.apply(Event::ServiceRanges(
            [Range::new("10.96.0.0".parse().unwrap(), 16).unwrap()].into(),
        ));
        desired.model().service_ranges().unwrap().ranges.len()
    }
    assert_eq!(received(Planner::default()), 1);
    assert_eq!(received(RangesUnknown::default()), 0);
}
