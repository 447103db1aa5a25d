//! Each misreading shows where it is meant to, and a Service with one ordinary slice is served as ever.

use mutants::slices_misread::{Misreading, SlicesMisread};
use reference_agent::{
    control::Planner,
    maps::Contents,
    model::Slice,
    testing::{
        World,
        objects::{addresses, service, slice},
    },
};

const ALL: [Misreading; 10] = [
    Misreading::AnyNamespace,
    Misreading::OwnName,
    Misreading::FirstLabel,
    Misreading::PortNumber,
    Misreading::FirstNumber,
    Misreading::NoPorts,
    Misreading::Serving,
    Misreading::LastEntry,
    Misreading::LastAddress,
    Misreading::LeftOne,
];

/// Services `t/x` and `t/y` with port `web`, 80.
fn world(misreading: Misreading) -> World<SlicesMisread> {
    let mutant = SlicesMisread::new(Planner::default(), misreading);
    let mut world = World::with(mutant, &Contents::default());
    world.sync();
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80 web"]));
    world.put_service(service("t/y", "10.96.0.2", &["TCP 80 web"]));
    world
}

fn web(name: &str, endpoints: &[&str]) -> Slice {
    slice(name, "x", &["TCP 80 web"], endpoints)
}

/// What Service `t/x` serves once these slices were written.
#[track_caller]
fn check(misreading: Misreading, slices: &[Slice], expected: &[&str]) {
    let mut world = world(misreading);
    for slice in slices {
        world.put_slice(slice.clone());
    }
    assert_eq!(
        world.serves("TCP 10.96.0.1:80"),
        Some(addresses(expected)),
        "{misreading:?}"
    );
    world.assert_clean();
}

#[test]
fn ordinary_slices_are_served_written_again_and_deleted() {
    for misreading in ALL {
        let mut world = world(misreading);
        world.put_slice(web("t/1", &["1.1.1.1", "1.1.1.2"]));
        world.put_slice(slice("t/2", "y", &["TCP 80 web"], &["1.1.1.1"]));
        world.put_slice(web("t/1", &["1.1.1.2", "!1.1.1.3"]));
        let served = |world: &World<_>, frontend: &str| world.serves(frontend);
        assert_eq!(
            served(&world, "TCP 10.96.0.1:80"),
            Some(addresses(&["TCP 1.1.1.2:80"])),
            "{misreading:?}"
        );
        assert_eq!(
            served(&world, "TCP 10.96.0.2:80"),
            Some(addresses(&["TCP 1.1.1.1:80"])),
            "{misreading:?}"
        );
        world.delete_slice("t/1");
        assert_eq!(
            served(&world, "TCP 10.96.0.1:80"),
            Some(addresses(&[])),
            "{misreading:?}"
        );
        world.assert_clean();
    }
}

#[test]
fn slices_belong_to_another_service_than_their_label_says() {
    check(
        Misreading::AnyNamespace,
        &[web("t/1", &["1.1.1.1"]), web("u/1", &["1.1.1.2"])],
        &["TCP 1.1.1.1:80", "TCP 1.1.1.2:80"],
    );
    let of_y = |name| slice(name, "y", &["TCP 80 web"], &["1.1.1.1"]);
    check(Misreading::OwnName, &[of_y("t/x")], &["TCP 1.1.1.1:80"]);
    check(Misreading::OwnName, &[of_y("t/z")], &[]);
    check(
        Misreading::FirstLabel,
        &[web("t/1", &["1.1.1.1"]), of_y("t/1")],
        &["TCP 1.1.1.1:80"],
    );
}

#[test]
fn ports_are_those_of_the_number_or_of_the_first_slice_or_of_the_service() {
    let admin = slice("t/1", "x", &["TCP 80 admin"], &["1.1.1.1"]);
    check(Misreading::PortNumber, &[admin], &["TCP 1.1.1.1:80"]);
    let other = slice("t/2", "x", &["TCP 81 web"], &["1.1.1.2"]);
    check(
        Misreading::FirstNumber,
        &[web("t/1", &["1.1.1.1"]), other],
        &["TCP 1.1.1.1:80", "TCP 1.1.1.2:80"],
    );
    check(
        Misreading::NoPorts,
        &[slice("t/1", "x", &[], &["1.1.1.1"])],
        &["TCP 1.1.1.1:80"],
    );
}

#[test]
fn another_condition_or_another_entry_of_the_address_decides() {
    let mut not_serving = web("t/1", &["1.1.1.1"]);
    not_serving.endpoints[0].serving = false;
    check(Misreading::Serving, &[not_serving], &[]);
    check(
        Misreading::LastEntry,
        &[web("t/1", &["1.1.1.1", "!1.1.1.1"])],
        &[],
    );
    check(
        Misreading::LastEntry,
        &[web("t/1", &["1.1.1.1"]), web("t/2", &["!1.1.1.1"])],
        &[],
    );
    let other = slice("t/2", "x", &["TCP 81 web"], &["1.1.1.1"]);
    let both = [web("t/1", &["1.1.1.1"]), other];
    check(
        Misreading::LastEntry,
        &both,
        &["TCP 1.1.1.1:80", "TCP 1.1.1.1:81"],
    );
    check(Misreading::LastAddress, &both, &["TCP 1.1.1.1:81"]);
}

#[test]
fn an_address_that_leaves_one_slice_leaves_all_until_they_are_written_again() {
    let both = [web("t/1", &["1.1.1.1"]), web("t/2", &["1.1.1.1"])];
    check(Misreading::LeftOne, &both, &["TCP 1.1.1.1:80"]);
    let [first, second] = both;
    let emptied = web("t/1", &[]);
    check(
        Misreading::LeftOne,
        &[first.clone(), second.clone(), emptied.clone()],
        &[],
    );
    check(
        Misreading::LeftOne,
        &[first, second.clone(), emptied, second],
        &["TCP 1.1.1.1:80"],
    );
}
