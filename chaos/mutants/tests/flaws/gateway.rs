//! The gateway routes each Service range once, even if the desired state ignores ranges.

use mutants::{gateway::Gateway, ranges_unknown::RangesUnknown};
use reference_agent::{
    control::{DesiredState, Planner},
    endpoint_address::Range,
    model::{Event, Kind, ServiceCidr},
};

fn range(text: &str, length: u8) -> Range {
    Range::new(text.parse().expect("an address"), length).expect("a range")
}

#[test]
fn each_range_is_routed_there_once_and_the_desired_state_gets_every_event() {
    fn received(desired: impl DesiredState) -> (Vec<Range>, usize) {
        let mut routed = Vec::new();
        let mut gateway = Gateway::new(desired, |range| routed.push(range));
        for kind in Kind::ALL {
            gateway.apply(Event::Synced(kind));
        }
        let object = |ranges: Vec<Range>| {
            let name = "kubernetes".to_owned();
            Event::ServiceCidrApplied(ServiceCidr { name, ranges })
        };
        let (v4, v6) = (range("10.96.0.0", 16), range("fd00:96::", 112));
        gateway.apply(object(vec![v4]));
        gateway.apply(object(vec![v4, v6]));
        let known = gateway.model().service_ranges().unwrap().ranges.len();
        drop(gateway);
        (routed, known)
    }
    let both = vec![range("10.96.0.0", 16), range("fd00:96::", 112)];
    assert_eq!(received(Planner::default()), (both.clone(), 2));
    assert_eq!(received(RangesUnknown::default()), (both, 0));
}
