//! Between two sets of backends a service has none; afterwards it is as the production agent writes it.

use std::time::Instant;

use mutants::two_writes::two_writes;
use reference_agent::{
    control::{Control, Planner},
    datapath::Datapath as _,
    model::Event,
    testing::{
        node::Node,
        objects::{service, slice},
        synced,
    },
};

#[test]
fn a_service_takes_a_while_for_each_write_and_ends_up_right() {
    let took = |is_mutant: bool| {
        let node = Node::new();
        let events = [
            Event::ServiceApplied(service("t/x", "10.96.0.1", &["TCP 80"])),
            Event::SliceApplied(slice("t/x", "x", &["TCP 8080"], &["10.0.0.1"])),
        ];
        let events = events.into_iter().chain(synced());
        let began = Instant::now();
        if is_mutant {
            run(
                Control::new(Planner::default(), two_writes(node.open()).maps()).unwrap(),
                events,
            );
        } else {
            run(
                Control::new(Planner::default(), node.open().maps()).unwrap(),
                events,
            );
        }
        (began.elapsed(), node.contents())
    };
    let ((slow, mutant), (_, production)) = (took(true), took(false));
    assert_eq!(mutant, production);
    assert!(slow.as_millis() >= 30, "{slow:?}");
}

fn run<M: reference_agent::maps::LbMaps>(
    mut control: Control<Planner, M>,
    events: impl Iterator<Item = Event>,
) {
    for event in events {
        control.apply(event);
    }
    control.reconcile(Instant::now());
}
