//! The gateway routes each service range once, also when the desired state ignores service ranges.

use mutants::{gateway::Gateway, ranges_unknown::RangesUnknown};
use reference_agent::{
    control::{DesiredState, Planner},
    model::{Event, Kind, ServiceCidr},
    transport::Range,
};

fn range(text: &str, length: u8) -> Range {
    Range::new(text.parse().expect("an address"), length).expect("a range")
}

#[test]
fn each_range_is_routed_there_once_and_the_desired_state_gets_every_event() {
    fn heard(desired: impl DesiredState) -> (Vec<Range>, usize) {
        let mut led = Vec::new();
        let mut gateway = Gateway::new(desired, |range| led.push(range));
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
        (led, known)
    }
    let both = vec![range("10.96.0.0", 16), range("fd00:96::", 112)];
    assert_eq!(heard(Planner::default()), (both.clone(), 2));
    assert_eq!(heard(RangesUnknown::default()), (both, 0));
}
