//! Writes that fail: what worked keeps working, the rest is named and tried again.

use std::time::Duration;

use reference_agent::{
    control::Planner,
    maps::memory::Capacities,
    reconcile::{RETRY_FIRST, RETRY_LIMIT},
    testing::{
        World,
        objects::{addresses, service, slice},
    },
};
use rstest::rstest;

fn served() -> World<Planner> {
    let mut world = World::synced();
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80"]));
    world.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.1", "1.1.1.2"]));
    world
}

/// Applies a change of which one write fails, without letting the retry come due.
fn change_with_failure(world: &mut World<Planner>, at: usize) {
    world.faults().script((0..=at).map(|index| index == at));
    world
        .control
        .apply(reference_agent::model::Event::SliceApplied(slice(
            "t/1",
            "x",
            &["TCP 80"],
            &["1.1.1.2", "1.1.1.3"],
        )));
    assert!(!world.settle_within(0), "nothing failed");
}

#[rstest]
#[case::backend(0)]
#[case::first_slot(1)]
#[case::second_slot(2)]
#[case::the_switch(3)]
fn before_the_switch_the_old_set_keeps_working(#[case] at: usize) {
    let mut world = served();
    change_with_failure(&mut world, at);
    assert_eq!(
        world.serves("TCP 10.96.0.1:80"),
        Some(addresses(&["TCP 1.1.1.1:80", "TCP 1.1.1.2:80"]))
    );
    let [trouble] = &world.control.troubles()[..] else {
        panic!("one trouble")
    };
    assert!(
        trouble.starts_with("service t/x port TCP 80 is not written after 1 attempts: put on map"),
        "{trouble}"
    );
    world.wait(RETRY_FIRST);
    assert_eq!(
        world.serves("TCP 10.96.0.1:80"),
        Some(addresses(&["TCP 1.1.1.2:80", "TCP 1.1.1.3:80"]))
    );
    assert_eq!(world.control.troubles(), [] as [String; 0]);
    world.assert_clean();
}

#[rstest]
#[case::barrier(4)]
#[case::old_slot(5)]
#[case::another_old_slot(6)]
#[case::old_backend(7)]
fn after_the_switch_the_new_set_works_and_what_is_left_is_named(#[case] at: usize) {
    let mut world = served();
    change_with_failure(&mut world, at);
    assert_eq!(
        world.serves("TCP 10.96.0.1:80"),
        Some(addresses(&["TCP 1.1.1.2:80", "TCP 1.1.1.3:80"]))
    );
    let [trouble] = &world.control.troubles()[..] else {
        panic!("one trouble")
    };
    assert!(
        trouble.starts_with("entries to be removed are still there after 1 attempts"),
        "{trouble}"
    );
    world.wait(RETRY_FIRST);
    assert_eq!(world.control.troubles(), [] as [String; 0]);
    world.assert_clean();
}

#[test]
fn a_frontend_that_could_not_be_put_is_put_later() {
    let mut world = World::synced();
    world.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.1"]));
    world.faults().script([false, false, false, true]);
    world
        .control
        .apply(reference_agent::model::Event::ServiceApplied(service(
            "t/x",
            "10.96.0.1",
            &["TCP 80"],
        )));
    assert!(!world.settle_within(0));
    assert_eq!(world.serves("TCP 10.96.0.1:80"), None);
    world.assert_clean();
    world.wait(RETRY_FIRST);
    assert_eq!(
        world.serves("TCP 10.96.0.1:80"),
        Some(addresses(&["TCP 1.1.1.1:80"]))
    );
    world.assert_clean();
}

#[test]
fn retries_come_later_and_later_up_to_the_limit_and_an_event_tries_at_once() {
    let mut world = served();
    world.faults().script([true; 100]);
    world
        .control
        .apply(reference_agent::model::Event::SliceApplied(slice(
            "t/1",
            "x",
            &["TCP 80"],
            &["1.1.1.3"],
        )));
    let mut delays = Vec::new();
    for _ in 0..12 {
        world.settle_within(0);
        let deadline = world.control.deadline().expect("it fails");
        delays.push(deadline - world.now);
        world.now = deadline;
    }
    assert_eq!(delays[..2], [RETRY_FIRST, RETRY_FIRST * 2]);
    assert_eq!(delays[11], RETRY_LIMIT);
    world.faults().script([]);
    world.now -= Duration::from_secs(1);
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80"]));
    assert_eq!(
        world.serves("TCP 10.96.0.1:80"),
        Some(addresses(&["TCP 1.1.1.3:80"]))
    );
    world.assert_clean();
}

fn with_room(change: impl FnOnce(&mut Capacities)) -> World<Planner> {
    let mut world = served();
    let mut capacities = Capacities::default();
    change(&mut capacities);
    world.faults().inner_mut().set_capacities(capacities);
    world
}

#[rstest]
#[case::frontends("FRONTENDS", with_room(|room| room.frontends = 1))]
#[case::slots("SLOTS", with_room(|room| room.slots = 2))]
#[case::backends("BACKENDS", with_room(|room| room.backends = 2))]
fn a_full_map_keeps_what_is_there_names_what_does_not_fit_and_takes_it_when_there_is_room(
    #[case] map: &str,
    #[case] mut world: World<Planner>,
) {
    world.put_slice_unsettled(slice("t/2", "y", &["TCP 80"], &["1.1.1.9"]));
    world
        .control
        .apply(reference_agent::model::Event::ServiceApplied(service(
            "t/y",
            "10.96.0.2",
            &["TCP 80"],
        )));
    assert!(!world.settle_within(8), "it fits");
    assert_eq!(
        world.serves("TCP 10.96.0.1:80"),
        Some(addresses(&["TCP 1.1.1.1:80", "TCP 1.1.1.2:80"]))
    );
    assert_eq!(world.serves("TCP 10.96.0.2:80"), None);
    let [trouble] = &world.control.troubles()[..] else {
        panic!("{:?}", world.control.troubles())
    };
    assert!(
        trouble.starts_with("service t/y port TCP 80 is not written after "),
        "{trouble}"
    );
    assert!(trouble.contains(&format!("map {map} is full")), "{trouble}");
    world.assert_clean();

    world.delete_service_unsettled("t/x");
    world.settle();
    assert_eq!(
        world.serves("TCP 10.96.0.2:80"),
        Some(addresses(&["TCP 1.1.1.9:80"]))
    );
    world.assert_clean();
}

#[test]
fn a_set_that_does_not_fit_leaves_the_old_set_in_place() {
    // Room for the two slots that are there and one more: not for both generations.
    let mut world = with_room(|room| room.slots = 3);
    world.put_slice_unsettled(slice("t/1", "x", &["TCP 80"], &["1.1.1.7", "1.1.1.8"]));
    assert!(!world.settle_within(8), "it fits");
    assert_eq!(
        world.serves("TCP 10.96.0.1:80"),
        Some(addresses(&["TCP 1.1.1.1:80", "TCP 1.1.1.2:80"]))
    );
    world.assert_clean();
    world.faults().inner_mut().set_capacities(Capacities::default());
    world.settle();
    assert_eq!(
        world.serves("TCP 10.96.0.1:80"),
        Some(addresses(&["TCP 1.1.1.7:80", "TCP 1.1.1.8:80"]))
    );
    world.assert_clean();
}

#[test]
fn what_fails_for_a_deleted_service_is_forgotten_with_it() {
    let mut world = with_room(|room| room.slots = 2);
    world.put_slice_unsettled(slice("t/1", "x", &["TCP 80"], &["1.1.1.7"]));
    assert!(!world.settle_within(2));
    world.delete_service("t/x");
    assert_eq!(world.control.troubles(), [] as [String; 0]);
    assert_eq!(world.contents(), reference_agent::maps::Contents::default());
}
