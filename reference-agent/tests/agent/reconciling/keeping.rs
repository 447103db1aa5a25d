//! API access: the backends that are kept for the agent, for how long, and that other sockets do not get them.

use lb_abi::Service as Value;
use reference_agent::{
    control::Planner,
    maps::{Contents, memory::Capacities},
    model::{Event, Service, Slice},
    testing::{
        World,
        objects::{service, slice},
    },
};
use rstest::rstest;

use super::{planner, restart_unchanged, section, world};

fn api() -> Service {
    service("default/kubernetes", "10.96.0.1", &["TCP 443 https"])
}

fn servers(endpoints: &[&str]) -> Slice {
    slice("default/kubernetes", "kubernetes", &["TCP 6443 https"], endpoints)
}

fn served() -> World<Planner> {
    let mut world = world();
    world.put_service(api());
    world.put_slice(servers(&["10.0.0.7", "10.0.0.8"]));
    assert_eq!(section(&world, "kept"), [""; 0]);
    world
}

const LAST: [&str; 1] = ["TCP 10.96.0.1:443 -> 10.0.0.7:6443 10.0.0.8:6443"];

#[test]
fn the_last_backends_are_kept_until_there_are_others() {
    let mut world = served();
    world.put_slice(servers(&[]));
    assert_eq!(section(&world, "frontends"), ["TCP 10.96.0.1:443 -> refused"]);
    assert_eq!(section(&world, "kept"), LAST);
    // Once more empty, and gone: nothing is forgotten.
    world.delete_slice("default/kubernetes");
    assert_eq!(section(&world, "kept"), LAST);
    world.put_slice(servers(&["10.0.0.9"]));
    assert_eq!(section(&world, "kept"), [""; 0]);
    assert_eq!(world.contents().backends.len(), 1, "the others are gone");
    world.put_slice(servers(&[]));
    assert_eq!(section(&world, "kept"), ["TCP 10.96.0.1:443 -> 10.0.0.9:6443"]);
    world.assert_clean();
}

#[test]
fn the_same_backends_come_again() {
    let mut world = served();
    let before = world.contents().backends;
    world.put_slice(servers(&[]));
    world.put_slice(servers(&["10.0.0.7", "10.0.0.8"]));
    assert_eq!(section(&world, "kept"), [""; 0]);
    assert_eq!(
        world.contents().backends,
        before,
        "under the numbers that they had"
    );
    world.assert_clean();
}

#[test]
fn other_services_are_not_kept() {
    let mut world = world();
    world.put_service(service("t/x", "10.96.0.2", &["TCP 443"]));
    world.put_slice(slice("t/1", "x", &["TCP 443"], &["10.0.0.7"]));
    world.put_slice(slice("t/1", "x", &["TCP 443"], &[]));
    assert_eq!(world.contents().kept, []);
    assert_eq!(world.contents().slots, []);
    world.assert_clean();
}

#[rstest]
#[case::service_deleted(|world: &mut World<Planner>| world.delete_service("default/kubernetes"))]
#[case::frontend_moved(|world: &mut World<Planner>| {
    world.put_service(service("default/kubernetes", "10.96.0.9", &["TCP 443 https"]));
})]
#[case::another_port(|world: &mut World<Planner>| {
    world.put_service(service("default/kubernetes", "10.96.0.1", &["TCP 444 https"]));
})]
fn what_is_kept_goes_with_the_frontend(#[case] end: fn(&mut World<Planner>)) {
    let mut world = served();
    world.put_slice(servers(&[]));
    end(&mut world);
    let contents = world.contents();
    assert_eq!(
        (contents.kept, contents.slots, contents.backends),
        (vec![], vec![], vec![])
    );
    world.assert_clean();
}

#[test]
fn a_restart_keeps_what_was_kept() {
    let mut world = served();
    world.put_slice(servers(&[]));
    restart_unchanged(
        &world,
        vec![Event::ServiceApplied(api()), Event::SliceApplied(servers(&[]))],
    );
}

/// Between two starts, the servers leave, and an external IP of the API's Service becomes a new Service's, or an older
/// one's becomes the API's: the API's own backends are kept, in any order.
#[rstest]
fn what_is_kept_over_a_restart_stays_the_services_own(
    #[values(true, false)] lost: bool,
    #[values(true, false)] api_first: bool,
) {
    let with_shared = |mut service: Service| {
        service.external_ips = vec!["10.1.0.9".parse().expect("an address")];
        service
    };
    let other = service("t/x", "10.96.0.3", &["TCP 443 https"]);
    let mut world = world();
    let now = if lost {
        world.put_service(with_shared(api()));
        [api(), with_shared(other)]
    } else {
        world.put_service(api());
        world.put_service(with_shared(other.clone()));
        [with_shared(api()), other]
    };
    world.put_slice(servers(&["10.0.0.7", "10.0.0.8"]));
    let mut restarted = World::with(planner(), &world.contents());
    let mut events = now.map(Event::ServiceApplied);
    if !api_first {
        events.reverse();
    }
    for event in events {
        restarted.event(event);
    }
    restarted.event(Event::SliceApplied(servers(&[])));
    restarted.sync();
    assert!(
        section(&restarted, "kept").contains(&LAST[0].to_owned()),
        "nothing is kept"
    );
    restarted.assert_clean();
}

#[test]
fn a_frontend_given_up_in_the_same_moment_takes_nothing_along() {
    let mut world = world();
    let two = service("default/kubernetes", "10.96.0.1,10.96.0.5", &["TCP 443 https"]);
    world.put_service(two);
    world.put_slice(servers(&["10.0.0.7", "10.0.0.8"]));
    world.control.apply(Event::ServiceApplied(api()));
    world.control.apply(Event::SliceApplied(servers(&[])));
    world.settle();
    assert_eq!(section(&world, "frontends"), ["TCP 10.96.0.1:443 -> refused"]);
    assert_eq!(section(&world, "kept"), LAST);
    world.assert_clean();
}

#[test]
fn a_full_map_of_what_is_kept_is_named_and_tells_everybody_else_the_truth() {
    let mut world = served();
    let mut room = Capacities {
        kept: 0,
        ..Capacities::default()
    };
    world.faults().inner_mut().set_capacities(room);
    world.control.apply(Event::SliceApplied(servers(&[])));
    assert!(!world.settle_within(4), "it fits");
    assert_eq!(section(&world, "frontends"), ["TCP 10.96.0.1:443 -> refused"]);
    let [trouble] = &world.control.troubles()[..] else {
        panic!("{:?}", world.control.troubles())
    };
    assert!(trouble.ends_with("map KEPT is full (0 entries)"), "{trouble}");
    world.assert_lawful();
    // What it had waits for room.
    room.kept = 1;
    world.faults().inner_mut().set_capacities(room);
    world.settle();
    assert_eq!(section(&world, "kept"), LAST);
    world.assert_clean();
}

/// Each write of a change fails once.
#[rstest]
fn a_failure_on_the_way_loses_nothing(#[values(0, 1, 2, 3, 4, 5, 6, 7)] at: usize) {
    let mut world = served();
    world.faults().script((0..=at).map(|index| index == at));
    world.put_slice(servers(&[]));
    assert_eq!(section(&world, "kept"), LAST);
    world.faults().script((0..=at).map(|index| index == at));
    world.put_slice(servers(&["10.0.0.9"]));
    assert_eq!(section(&world, "kept"), [""; 0]);
    world.faults().script((0..=at).map(|index| index == at));
    world.put_slice(servers(&[]));
    assert_eq!(section(&world, "kept"), ["TCP 10.96.0.1:443 -> 10.0.0.9:6443"]);
    world.assert_clean();
}

#[test]
fn two_failures_in_a_row_keep_the_newest() {
    let mut world = served();
    world.put_slice(servers(&[]));
    // A backend, its slot, the switch, and then KEPT can't be emptied before there is no backend again.
    world.faults().script([false, false, false, true]);
    world.control.apply(Event::SliceApplied(servers(&["10.0.0.9"])));
    assert!(!world.settle_within(0), "nothing failed");
    world.faults().script([false, true]);
    world.put_slice(servers(&[]));
    assert_eq!(section(&world, "kept"), ["TCP 10.96.0.1:443 -> 10.0.0.9:6443"]);
    world.assert_clean();
}

/// What an agent has left that was killed between two writes, or that never was.
fn left(change: impl FnOnce(&mut Contents)) -> Contents {
    let mut world = served();
    world.put_slice(servers(&[]));
    let mut contents = world.contents();
    change(&mut contents);
    contents
}

#[rstest]
#[case::before_the_switch(left(|maps| maps.services[0].1 = maps.kept[0].1), &LAST)]
#[case::as_it_should_be(left(|_| ()), &LAST)]
#[case::a_slot_missing(left(|maps| _ = maps.slots.remove(0)), &[])]
#[case::a_backend_missing(left(|maps| _ = maps.backends.remove(0)), &[])]
#[case::too_many_slots(left(|maps| maps.kept[0].1.slots = u32::MAX), &[])]
#[case::no_slots(left(|maps| maps.kept[0].1.slots = 0), &[])]
#[case::no_generation(left(|maps| maps.kept[0].1.generation = 0), &[])]
#[case::of_the_empty_generation(left(|maps| maps.kept[0].1 = maps.services[0].1), &[])]
#[case::of_nobody_too(left(|maps| maps.kept.push((77, Value { generation: 1, slots: 1 }))), &LAST)]
fn a_restart_over_what_was_kept_in_part(#[case] found: Contents, #[case] kept: &[&str]) {
    let mut world = World::with(planner(), &found);
    world.put_service(api());
    world.put_slice(servers(&[]));
    world.sync();
    assert_eq!(section(&world, "frontends"), ["TCP 10.96.0.1:443 -> refused"]);
    assert_eq!(section(&world, "kept"), kept);
    assert_eq!(section(&world, "defects"), [""; 0]);
    world.delete_service("default/kubernetes");
    assert_eq!(world.contents(), Contents::default(), "no number was lost");
}
