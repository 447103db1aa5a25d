//! The mutant keeps the first addresses of the node.

use mutants::host_once::HostOnce;
use reference_agent::{
    control::{DesiredState, Planner},
    model::{Event, Host},
};

/// The node's addresses in the model after it had one and then another.
fn last(mut desired: impl DesiredState) -> String {
    for address in ["192.0.2.1", "192.0.2.2"] {
        desired.apply(Event::Host(Host {
            addresses: [address.parse().expect("an address")].into(),
            probe: None,
        }));
    }
    let host = desired.model().host().expect("the event has it");
    host.addresses.iter().map(ToString::to_string).collect()
}

#[test]
fn what_comes_later_is_not_taken() {
    assert_eq!(last(Planner::default()), "192.0.2.2");
    assert_eq!(last(HostOnce::new(Planner::default())), "192.0.2.1");
}
