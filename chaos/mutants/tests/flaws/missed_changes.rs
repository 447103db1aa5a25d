//! The mutants miss that something of a Service has gone, each in its own situation.

use mutants::missed_changes::{Missed, MissedChanges};
use reference_agent::{
    control::Planner,
    maps::Contents,
    model::{Service, SourceRanges},
    testing::{
        World,
        objects::{service, slice},
    },
};

fn world(missed: Missed) -> World<MissedChanges> {
    let mut world = World::with(
        MissedChanges::new(Planner::default(), missed),
        &Contents::default(),
    );
    world.sync();
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80"]));
    world.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.1"]));
    world
}

fn backends(world: &World<MissedChanges>, frontend: &str) -> Option<usize> {
    world.serves(frontend).map(|backends| backends.len())
}

#[test]
fn a_deleted_service_serves_on_with_its_endpoints() {
    let mut world = world(Missed::Deletion);
    world.delete_service("t/x");
    assert_eq!(backends(&world, "TCP 10.96.0.1:80"), Some(1));
    world.delete_slice("t/1");
    assert_eq!(backends(&world, "TCP 10.96.0.1:80"), Some(0));
}

#[test]
fn a_port_with_another_number_serves_at_both_and_ends_with_its_service() {
    let mut world = world(Missed::FormerPorts);
    world.put_service(service("t/x", "10.96.0.1", &["TCP 81"]));
    assert_eq!(backends(&world, "TCP 10.96.0.1:80"), Some(1));
    assert_eq!(backends(&world, "TCP 10.96.0.1:81"), Some(1));
    world.delete_service("t/x");
    assert_eq!(backends(&world, "TCP 10.96.0.1:80"), None);
}

#[test]
fn a_slice_that_outlived_its_service_counts_for_the_next_one() {
    let mut world = world(Missed::OrphanedSlices);
    world.delete_service("t/x");
    world.delete_slice("t/1");
    world.put_service(service("t/x", "10.96.0.2", &["TCP 80"]));
    world.put_slice(slice("t/2", "x", &["TCP 80"], &["1.1.1.2"]));
    assert_eq!(backends(&world, "TCP 10.96.0.2:80"), Some(2));
    world.delete_slice("t/2");
    assert_eq!(
        backends(&world, "TCP 10.96.0.2:80"),
        Some(1),
        "its Service exists"
    );
}

#[test]
fn an_address_that_leaves_the_status_is_captured_until_the_service_is_deleted() {
    let mut world = world(Missed::Balancers);
    let of = |addresses: &[&str]| Service {
        load_balancer_ips: addresses
            .iter()
            .map(|text| text.parse().expect("an address"))
            .collect(),
        ..service("t/x", "10.96.0.1", &["TCP 80"])
    };
    world.put_service(of(&["192.0.2.1"]));
    world.put_service(of(&["192.0.2.2"]));
    assert_eq!(backends(&world, "TCP 192.0.2.1:80"), Some(1));
    assert_eq!(backends(&world, "TCP 192.0.2.2:80"), Some(1));
    world.delete_service("t/x");
    assert_eq!(backends(&world, "TCP 192.0.2.1:80"), None);
}

#[test]
fn deleted_source_ranges_restrict_until_there_are_others() {
    let mut world = world(Missed::Ranges);
    let of = |ranges: Option<SourceRanges>| Service {
        load_balancer_ips: vec!["192.0.2.1".parse().expect("an address")],
        source_ranges: ranges,
        ..service("t/x", "10.96.0.1", &["TCP 80"])
    };
    let unreadable = SourceRanges {
        unreadable: true,
        ..SourceRanges::default()
    };
    world.put_service(of(None));
    let free = world.contents();
    world.put_service(of(Some(unreadable)));
    let ranged = world.contents();
    assert_ne!(free, ranged);
    world.put_service(of(None));
    assert_eq!(world.contents(), ranged);
    world.put_service(of(Some(SourceRanges::default())));
    assert_ne!(world.contents(), ranged);
}
