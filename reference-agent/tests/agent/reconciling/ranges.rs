//! Ranges of clients: there before a frontend asks for them, and for as long.

use reference_agent::{
    maps::memory::Capacities,
    model::{Event, SourceRanges},
    reconcile::RETRY_FIRST,
    testing::objects::{service, slice},
};
use rstest::rstest;

use super::{balanced, endpoints, fresh, ranged, restart_unchanged, section, world};

const ONE: [&str; 2] = ["192.0.2.0/24", "203.0.113.7/32"];
const OTHER: [&str; 2] = ["192.0.2.0/24", "10.0.0.0/8"];

#[test]
fn load_balancer_addresses_alone_are_restricted() {
    let mut world = world();
    world.put_service(ranged(&ONE));
    world.put_slice(endpoints(&["10.0.0.7"]));
    assert_eq!(
        section(&world, "frontends"),
        [
            "TCP 0.0.0.0:30080 -> 10.0.0.7:8080",
            "TCP 10.96.0.2:80 -> 10.0.0.7:8080",
            "TCP 198.51.100.7:80 -> 10.0.0.7:8080 (only from 192.0.2.0/24 203.0.113.7/32)",
        ]
    );
    restart_unchanged(
        &world,
        vec![
            Event::ServiceApplied(ranged(&ONE)),
            Event::SliceApplied(endpoints(&["10.0.0.7"])),
        ],
    );
    world.assert_clean();
}

#[test]
fn ranges_that_admit_nobody_admit_nobody() {
    let mut world = world();
    let mut service = balanced();
    service.source_ranges = Some(SourceRanges {
        unreadable: true,
        ..SourceRanges::default()
    });
    world.put_service(service);
    assert_eq!(
        section(&world, "frontends")[2],
        "TCP 198.51.100.7:80 -> refused (only from nobody)"
    );
    assert_eq!(world.contents().sources, []);
    world.assert_clean();
}

#[test]
fn ranges_come_change_and_go() {
    let mut world = world();
    world.put_slice(endpoints(&["10.0.0.7"]));
    for service in [
        balanced(),
        ranged(&ONE),
        ranged(&OTHER),
        ranged(&[]),
        ranged(&ONE),
        balanced(),
    ] {
        world.put_service(service.clone());
        world.assert_clean();
        let events = vec![
            Event::SliceApplied(endpoints(&["10.0.0.7"])),
            Event::ServiceApplied(service),
        ];
        assert_eq!(reference_agent::dump::dump(&world.contents()), fresh(events));
    }
    assert_eq!(world.contents().sources, []);
}

/// A frontend comes from another Service while the ranges of the one that it comes to get fewer: never does it admit
/// whom it admitted neither before nor will after.
#[test]
fn a_frontend_that_comes_does_not_meet_ranges_that_go() {
    const NARROW: [&str; 1] = ["192.0.2.0/24"];
    let other_address = "198.51.100.8".parse().expect("an address");
    let mut world = world();
    world.put_service(ranged(&ONE));
    world.put_slice(endpoints(&["10.0.0.7"]));
    let mut other = service("t/y", "10.96.0.3", &["TCP 80"]);
    other.load_balancer_ips = vec![other_address];
    other.source_ranges = ranged(&NARROW).source_ranges;
    world.put_service(other);
    // The first by name has the address of both.
    let mut both = ranged(&NARROW);
    both.load_balancer_ips.push(other_address);
    world.put_service(both);
    assert_eq!(
        section(&world, "frontends")[3..],
        [
            "TCP 198.51.100.7:80 -> 10.0.0.7:8080 (only from 192.0.2.0/24)",
            "TCP 198.51.100.8:80 -> 10.0.0.7:8080 (only from 192.0.2.0/24)",
        ]
    );
    world.assert_clean();
}

/// Each write of a change fails once: never is anybody admitted who was not and will not be, nor turned away who was
/// and will be, and in the end everything is there.
#[rstest]
fn a_failure_on_the_way_lets_nobody_in(
    #[values(true, false)] coming: bool,
    #[values(0, 1, 2, 3, 4, 5, 6)] at: usize,
) {
    let mut world = world();
    world.put_slice(endpoints(&["10.0.0.7"]));
    let (from, to) = if coming {
        (balanced(), ranged(&ONE))
    } else {
        (ranged(&ONE), ranged(&OTHER))
    };
    world.put_service(from);
    world.faults().script((0..=at).map(|index| index == at));
    world.put_service(to.clone());
    world.faults().script([]);
    world.assert_clean();
    let events = vec![
        Event::SliceApplied(endpoints(&["10.0.0.7"])),
        Event::ServiceApplied(to),
    ];
    assert_eq!(reference_agent::dump::dump(&world.contents()), fresh(events));
}

#[test]
fn ranges_that_do_not_fit_keep_their_frontend_out_and_no_other() {
    let mut world = world();
    world.put_slice(endpoints(&["10.0.0.7"]));
    world.faults().inner_mut().set_capacities(Capacities {
        sources: 1,
        ..Capacities::default()
    });
    world.control.apply(Event::ServiceApplied(ranged(&ONE)));
    assert!(!world.settle_within(4), "they fit");
    assert_eq!(
        section(&world, "frontends"),
        [
            "TCP 0.0.0.0:30080 -> 10.0.0.7:8080",
            "TCP 10.96.0.2:80 -> 10.0.0.7:8080"
        ]
    );
    let [trouble] = &world.control.troubles()[..] else {
        panic!("{:?}", world.control.troubles())
    };
    assert!(
        trouble.starts_with("service t/x port TCP (IPv4) is not written after ")
            && trouble.ends_with("map SOURCES is full (1 entries)"),
        "{trouble}"
    );
    world.assert_lawful();
    world.faults().inner_mut().set_capacities(Capacities::default());
    world.settle();
    assert_eq!(section(&world, "frontends").len(), 3);
    world.assert_clean();
}

#[test]
fn a_number_rests_until_its_ranges_are_gone() {
    let mut world = world();
    world.put_service(ranged(&ONE));
    world.put_slice(endpoints(&["10.0.0.7"]));
    let ranges = world.contents().sources;
    // Three frontends, two addresses, then, behind a barrier, the service, its slot, and the first range, which fails.
    let mut script = vec![false; 8];
    script.push(true);
    world.faults().script(script);
    world.delete_service_unsettled("t/x");
    assert!(!world.settle_within(0), "nothing failed");
    assert_eq!(
        world.contents().sources,
        ranges[..1],
        "one of them is still there"
    );
    world.put_service(service("t/y", "10.96.0.3", &["TCP 80"]));
    world.put_slice(slice("t/2", "y", &["TCP 80"], &["10.0.0.9"]));
    world.wait(RETRY_FIRST);
    world.settle();
    assert_eq!(world.contents().sources, []);
    world.assert_clean();
}
