//! Writes that fail: what worked keeps working, the rest is named and tried again.

use std::{net::IpAddr, time::Duration};

use reference_agent::{
    control::Planner,
    maps::memory::Capacities,
    model::Event,
    plan::{Perspective, Selection},
    reconcile::{RETRY_FIRST, RETRY_LIMIT},
    resolve::{self, Defect},
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
    world.control.apply(Event::SliceApplied(slice(
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
        trouble.starts_with("service t/x port TCP (IPv4) is not written after 1 attempts: put on map"),
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

/// Nothing is left over but an address whose frontends are still to come: meanwhile connections are refused there.
fn assert_waiting(world: &World<Planner>, address: &str) {
    let address: IpAddr = address.parse().expect("an address");
    let (_, defects) = resolve::resolve(&world.contents());
    assert_eq!(defects, [Defect::OrphanAddress(address.into())].into());
    world.assert_lawful();
}

#[test]
fn an_address_that_could_not_be_put_is_put_later_and_its_frontends_after_it() {
    let mut world = served();
    world.faults().script([true]);
    let moved = service("t/x", "10.96.0.1,10.96.0.2", &["TCP 80"]);
    world.control.apply(Event::ServiceApplied(moved));
    assert!(!world.settle_within(0), "nothing failed");
    assert_eq!(
        world.control.troubles(),
        [
            "service t/x is not written after 1 attempts: put on map ADDRESSES failed: Cannot allocate memory (os error 12)"
        ]
    );
    let backends = addresses(&["TCP 1.1.1.1:80", "TCP 1.1.1.2:80"]);
    assert_eq!(world.serves("TCP 10.96.0.1:80").as_ref(), Some(&backends));
    assert_eq!(world.serves("TCP 10.96.0.2:80"), None);
    world.assert_clean();
    world.wait(RETRY_FIRST);
    assert_eq!(world.serves("TCP 10.96.0.2:80"), Some(backends));
    world.assert_clean();
}

#[test]
fn an_address_that_does_not_fit_is_named_and_nothing_else_is_written_for_it() {
    let mut world = with_room(|room| room.addresses = 1);
    let before = world.memory().writes();
    world
        .control
        .apply(Event::ServiceApplied(service("t/y", "10.96.0.2", &["TCP 80"])));
    assert!(!world.settle_within(8), "it fits");
    let [trouble] = &world.control.troubles()[..] else {
        panic!("{:?}", world.control.troubles())
    };
    assert!(
        trouble.starts_with("service t/y is not written after "),
        "{trouble}"
    );
    assert!(
        trouble.ends_with("map ADDRESSES is full (1 entries)"),
        "{trouble}"
    );
    assert_eq!(world.memory().writes(), before);
    world.assert_clean();

    world.delete_service_unsettled("t/x");
    world.settle();
    assert_eq!(world.serves("TCP 10.96.0.2:80"), Some(addresses(&[])));
    world.assert_clean();
}

#[test]
fn an_address_that_could_not_be_deleted_is_named_and_deleted_later() {
    let mut world = served();
    // Its frontend, then its address.
    world.faults().script([false, true]);
    world.delete_service_unsettled("t/x");
    assert!(!world.settle_within(0), "nothing failed");
    assert_eq!(world.serves("TCP 10.96.0.1:80"), None);
    assert_waiting(&world, "10.96.0.1");
    let [trouble] = &world.control.troubles()[..] else {
        panic!("one trouble")
    };
    assert!(
        trouble
            .starts_with("entries to be removed are still there after 1 attempts: delete on map ADDRESSES"),
        "{trouble}"
    );
    world.wait(RETRY_FIRST);
    assert_eq!(world.contents(), reference_agent::maps::Contents::default());
    world.assert_clean();
}

#[test]
fn an_address_stays_while_a_frontend_could_not_be_deleted() {
    let mut world = served();
    world.faults().script([true]);
    world.delete_service_unsettled("t/x");
    assert!(!world.settle_within(0), "nothing failed");
    assert_eq!(world.contents().addresses.len(), 1);
    world.assert_clean();
    world.wait(RETRY_FIRST);
    assert_eq!(world.contents(), reference_agent::maps::Contents::default());
}

#[test]
fn a_frontend_that_could_not_be_put_is_put_later() {
    let mut world = World::synced();
    world.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.1"]));
    world.faults().script([false, false, false, false, true]);
    world
        .control
        .apply(Event::ServiceApplied(service("t/x", "10.96.0.1", &["TCP 80"])));
    assert!(!world.settle_within(0));
    assert_eq!(world.serves("TCP 10.96.0.1:80"), None);
    assert_waiting(&world, "10.96.0.1");
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
        .apply(Event::SliceApplied(slice("t/1", "x", &["TCP 80"], &["1.1.1.3"])));
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
        .apply(Event::ServiceApplied(service("t/y", "10.96.0.2", &["TCP 80"])));
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
        trouble.starts_with("service t/y port TCP (IPv4) is not written after "),
        "{trouble}"
    );
    assert!(trouble.contains(&format!("map {map} is full")), "{trouble}");
    assert_waiting(&world, "10.96.0.2");

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

#[test]
fn a_table_that_does_not_fit_is_named_and_leaves_the_room_to_others() {
    let mut world = World::seen_as(Perspective {
        selection: Selection::Maglev,
        ..Perspective::default()
    });
    world.sync();
    world.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.1", "1.1.1.2"]));
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80"]));
    // Room for the table of two that is there, for one slot, and for not quite as much again.
    let capacities = Capacities {
        slots: 500,
        ..Capacities::default()
    };
    world.faults().inner_mut().set_capacities(capacities);
    world.put_slice(slice("t/2", "y", &["TCP 80"], &["1.1.1.1", "1.1.1.3"]));
    world.put_slice(slice("t/3", "z", &["TCP 80"], &["1.1.1.4"]));
    for name in ["y", "z"] {
        let ip = if name == "y" { "10.96.0.2" } else { "10.96.0.3" };
        let object = service(&format!("t/{name}"), ip, &["TCP 80"]);
        world.control.apply(Event::ServiceApplied(object));
    }
    assert!(!world.settle_within(0), "it fits");
    assert_eq!(
        world.serves("TCP 10.96.0.3:80"),
        Some(addresses(&["TCP 1.1.1.4:80"])),
        "in the same round"
    );
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
        trouble.starts_with("service t/y port TCP (IPv4) is not written after "),
        "{trouble}"
    );
    assert!(trouble.ends_with("map SLOTS is full (500 entries)"), "{trouble}");
    assert_waiting(&world, "10.96.0.2");

    // Its table and the next one would not be there at once: the old one goes on, and the change comes with room.
    world.put_slice_unsettled(slice("t/1", "x", &["TCP 80"], &["1.1.1.1", "1.1.1.9"]));
    assert!(!world.settle_within(8), "it fits");
    assert_eq!(
        world.serves("TCP 10.96.0.1:80"),
        Some(addresses(&["TCP 1.1.1.1:80", "TCP 1.1.1.2:80"]))
    );
    world.faults().inner_mut().set_capacities(Capacities::default());
    world.settle();
    assert_eq!(
        world.serves("TCP 10.96.0.1:80"),
        Some(addresses(&["TCP 1.1.1.1:80", "TCP 1.1.1.9:80"]))
    );
    assert_eq!(
        world.serves("TCP 10.96.0.2:80"),
        Some(addresses(&["TCP 1.1.1.1:80", "TCP 1.1.1.3:80"]))
    );
    world.assert_clean();
}
