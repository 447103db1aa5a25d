//! Two sets of backends for a service port, flags of frontends, members for affinity.

use lb_abi::{SlotKey, frontend_flags};
use reference_agent::{
    model::{Event, Policy, Service},
    testing::objects::service,
};
use rstest::rstest;

use super::{balanced, endpoints, fresh, local, restart_unchanged, section, world};

const MIXED: [&str; 3] = ["10.0.0.7@here", "10.0.0.8@there", "10.0.0.9"];

#[test]
fn clients_inside_and_outside_have_sets_of_their_own() {
    let mut world = world();
    world.put_service(local());
    world.put_slice(endpoints(&MIXED));
    assert_eq!(
        section(&world, "frontends"),
        [
            "TCP 0.0.0.0:30080 -> inside 10.0.0.7:8080 10.0.0.8:8080 10.0.0.9:8080 | outside 10.0.0.7:8080 (silent)",
            "TCP 10.96.0.2:80 -> 10.0.0.7:8080 10.0.0.8:8080 10.0.0.9:8080",
            "TCP 198.51.100.7:80 -> inside 10.0.0.7:8080 10.0.0.8:8080 10.0.0.9:8080 | outside 10.0.0.7:8080 (silent)",
        ]
    );
    assert_eq!(
        section(&world, "addresses"),
        [
            "10.96.0.2 -> other ports refused",
            "198.51.100.7 -> other ports refused from outside"
        ],
        "a node port has no address of its own"
    );
    let contents = world.contents();
    assert_eq!((contents.services.len(), contents.backends.len()), (2, 3));
    world.assert_clean();
    restart_unchanged(
        &world,
        vec![
            Event::ServiceApplied(local()),
            Event::SliceApplied(endpoints(&MIXED)),
        ],
    );
}

#[test]
fn a_set_that_no_frontend_uses_is_not_written() {
    let mut world = world();
    world.put_service(balanced());
    world.put_slice(endpoints(&MIXED));
    assert_eq!(world.contents().services.len(), 1);
    world.put_service(local());
    assert_eq!(world.contents().services.len(), 2);
    world.put_service(balanced());
    assert_eq!(world.contents().services.len(), 1);
    assert_eq!(world.contents().slots.len(), 3, "the other set's slots are gone");
    world.assert_clean();
}

#[rstest]
#[case::with_the_same_endpoints(&MIXED)]
#[case::with_others(&["10.0.0.8@here", "10.0.0.10@there"])]
#[case::with_none(&[])]
fn policies_change_without_a_mixture(#[case] after: &[&str]) {
    let internal = Service {
        internal_policy: Policy::Local,
        ..local()
    };
    for change in [
        balanced(),
        local(),
        internal,
        service("t/x", "10.96.0.2", &["TCP 80"]),
    ] {
        for from in [balanced(), local()] {
            let mut world = world();
            world.put_service(from);
            world.put_slice(endpoints(&MIXED));
            // In one reconciliation.
            world.control.apply(Event::ServiceApplied(change.clone()));
            world.control.apply(Event::SliceApplied(endpoints(after)));
            world.settle();
            world.assert_clean();
            let events = vec![
                Event::ServiceApplied(change.clone()),
                Event::SliceApplied(endpoints(after)),
            ];
            assert_eq!(
                reference_agent::dump::dump(&world.contents()),
                fresh(events.clone())
            );
            restart_unchanged(&world, events);
        }
    }
}

#[test]
fn silence_comes_with_the_first_backend_and_goes_with_the_last() {
    let mut world = world();
    world.put_service(local());
    let silent = |world: &reference_agent::testing::World<_>| {
        let contents = world.contents();
        let silent = contents
            .frontends
            .iter()
            .filter(|(_, value)| value.flags & frontend_flags::SILENT != 0);
        (
            silent.count(),
            contents.services.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
        )
    };
    let (none, numbers) = silent(&world);
    assert_eq!(none, 0, "nobody serves anywhere: that is said");
    for (listed, expected) in [(&["10.0.0.8@there"][..], 2), (&[], 0), (&["10.0.0.7@here"], 2)] {
        world.put_slice(endpoints(listed));
        assert_eq!(silent(&world), (expected, numbers.clone()), "of {listed:?}");
    }
    world.assert_clean();
}

fn sticky(seconds: u32) -> Service {
    Service {
        affinity_seconds: seconds,
        ..local()
    }
}

#[test]
fn affinity_notes_members_and_forgets_them() {
    let mut world = world();
    world.put_service(sticky(0));
    world.put_slice(endpoints(&MIXED));
    let members = |world: &reference_agent::testing::World<_>| {
        let slots = world.contents().slots.into_iter();
        slots.filter(|(key, _)| key.index & SlotKey::MEMBER != 0).count()
    };
    assert_eq!(members(&world), 0);
    world.put_service(sticky(10_800));
    assert_eq!(members(&world), 4, "three of the one set, one of the other");
    assert_eq!(
        section(&world, "frontends")[1],
        "TCP 10.96.0.2:80 -> 10.0.0.7:8080 10.0.0.8:8080 10.0.0.9:8080 (affinity 10800 s)"
    );
    restart_unchanged(
        &world,
        vec![
            Event::ServiceApplied(sticky(10_800)),
            Event::SliceApplied(endpoints(&MIXED)),
        ],
    );
    // Another time limit is a matter of frontends alone.
    let generations = world.contents().services;
    world.put_service(sticky(60));
    assert_eq!(world.contents().services, generations);
    world.put_slice(endpoints(&MIXED[..2]));
    assert_eq!(members(&world), 3);
    world.put_service(sticky(0));
    assert_eq!(members(&world), 0);
    world.assert_clean();
}

#[test]
fn affinity_ends_together_with_a_change_of_backends() {
    let mut world = world();
    world.put_service(sticky(60));
    world.put_slice(endpoints(&MIXED));
    world.control.apply(Event::ServiceApplied(sticky(0)));
    world.control.apply(Event::SliceApplied(endpoints(&MIXED[1..])));
    world.settle();
    world.assert_clean();
}

/// A program that found the frontend with affinity may still run, until a barrier.
#[test]
fn backends_that_change_right_after_the_end_of_affinity_are_members() {
    let mut world = world();
    world.put_service(sticky(60));
    world.put_slice(endpoints(&MIXED));
    let now = world.now;
    for event in [
        Event::ServiceApplied(sticky(0)),
        Event::SliceApplied(endpoints(&MIXED[1..])),
    ] {
        world.control.apply(event);
        world.round(now);
    }
    world.settle();
    world.assert_clean();
}

#[test]
fn a_backend_that_becomes_local_is_another_one_and_nobody_departs() {
    let mut world = world();
    world.put_service(service("t/x", "10.96.0.2", &["UDP 53"]));
    let at = |node: &str| {
        let endpoint = format!("10.0.0.7@{node}");
        reference_agent::testing::objects::slice("t/1", "x", &["UDP 53"], &[&endpoint])
    };
    world.put_slice(at("there"));
    let [(before, _)] = world.contents().backends[..] else {
        panic!("one backend")
    };
    world.put_slice(at("here"));
    let [(after, value)] = world.contents().backends[..] else {
        panic!("one backend")
    };
    assert_ne!(before, after, "two service ports may disagree about it");
    assert_eq!(value.flags, lb_abi::backend_flags::LOCAL);
    assert_eq!(world.control.take_changes().departed.listed, []);
    world.assert_clean();
}
