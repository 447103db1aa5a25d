//! The mutant keeps endpoints of slices with one name in two namespaces, and handles all others correctly.

use mutants::{slices_by_name::SlicesByName, wide_release::WideRelease};
use reference_agent::{
    control::{DesiredState, Planner},
    maps::Contents,
    testing::{
        World,
        objects::{addresses, service, slice},
    },
};

fn world<B: DesiredState>(inner: B) -> World<SlicesByName<B>> {
    let mut world = World::with(SlicesByName::new(inner), &Contents::default());
    world.sync();
    world.put_service(service("a/x", "10.96.0.1", &["TCP 80"]));
    world.put_service(service("b/x", "10.96.0.2", &["TCP 80"]));
    world
}

const A: &str = "TCP 10.96.0.1:80";
const B: &str = "TCP 10.96.0.2:80";

#[test]
fn of_two_slices_of_one_name_the_one_that_is_emptied_is_served_on() {
    let mut world = world(Planner::default());
    for name in ["a/s", "b/s"] {
        world.put_slice(slice(name, "x", &["TCP 80"], &["1.1.1.1"]));
    }
    world.put_slice(slice("a/s", "x", &["TCP 80"], &[]));
    assert_eq!(world.serves(A), Some(addresses(&["TCP 1.1.1.1:80"])));
    assert_eq!(world.serves(B), Some(addresses(&["TCP 1.1.1.1:80"])));
    world.delete_slice("a/s");
    assert_eq!(world.serves(A), Some(addresses(&[])));
}

#[test]
fn slices_of_different_names_are_served_as_ever() {
    let mut world = world(Planner::default());
    world.put_slice(slice("a/s", "x", &["TCP 80"], &["1.1.1.1"]));
    world.put_slice(slice("b/t", "x", &["TCP 80"], &["1.1.1.1"]));
    world.put_slice(slice("a/s", "x", &["TCP 80"], &[]));
    assert_eq!(world.serves(A), Some(addresses(&[])));
    assert_eq!(world.serves(B), Some(addresses(&["TCP 1.1.1.1:80"])));
    world.assert_clean();
}

#[test]
fn both_bugs_are_there_at_once() {
    let mut world = world(WideRelease::by_prefix(Planner::default()));
    world.put_service(service("a/xy", "10.96.0.3", &["TCP 80"]));
    world.put_slice(slice("a/s", "x", &["TCP 80"], &["1.1.1.1"]));
    world.put_slice(slice("a/t", "xy", &["TCP 80"], &["1.1.1.1"]));
    world.put_slice(slice("a/s", "x", &["TCP 80"], &[]));
    world.put_service(service("a/xy", "10.96.0.3", &["TCP 80"]));
    assert_eq!(
        world.serves("TCP 10.96.0.3:80"),
        Some(addresses(&[])),
        "lost by prefix"
    );
    world.put_slice(slice("a/s", "x", &["TCP 80"], &["1.1.1.1"]));
    world.put_slice(slice("b/s", "x", &["TCP 80"], &["1.1.1.1"]));
    world.put_slice(slice("a/s", "x", &["TCP 80"], &[]));
    assert_eq!(
        world.serves(A),
        Some(addresses(&["TCP 1.1.1.1:80"])),
        "kept by name"
    );
}
