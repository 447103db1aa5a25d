//! Releases that take more than their own: from whom, and from whom not.

use mutants::wide_release::WideRelease;
use reference_agent::{
    control::Planner,
    maps::Contents,
    testing::{
        World,
        objects::{service, slice},
    },
};

/// Whether the second Service loses the backend that it shares with the first, once that is emptied and the second has an
/// event of its own.
fn loses(mutant: WideRelease, culprit: &str, victim: &str) -> bool {
    let mut world = World::with(mutant, &Contents::default());
    world.sync();
    let put = |world: &mut World<WideRelease>, name: &str, address: &str| {
        world.put_service(service(name, address, &["TCP 80"]));
        let (_, owner) = name.split_once('/').expect("a namespace");
        world.put_slice(slice(name, owner, &["TCP 80"], &["1.1.1.1"]));
    };
    put(&mut world, culprit, "10.96.0.1");
    put(&mut world, victim, "10.96.0.2");
    let served = |world: &World<WideRelease>| {
        let backends = world.serves("TCP 10.96.0.2:80").expect("a frontend");
        backends.len()
    };
    let (_, owner) = culprit.split_once('/').expect("a namespace");
    world.put_slice(slice(culprit, owner, &["TCP 80"], &[]));
    assert_eq!(served(&world), 1, "not before its own event");
    world.put_service(service(victim, "10.96.0.2", &["TCP 80"]));
    world.assert_clean();
    served(&world) == 0
}

#[test]
fn by_joined_key_it_takes_from_names_that_join_to_the_same() {
    let loses = |culprit, victim| loses(WideRelease::by_joined_key(Planner::default()), culprit, victim);
    assert!(loses("a-b/c", "a/b-c"));
    assert!(loses("a/bc", "ab/c"));
    assert!(!loses("a/b", "a/b-c"));
    assert!(!loses("a/web", "b/web"));
}

#[test]
fn by_name_alone_it_takes_from_other_namespaces() {
    let loses = |culprit, victim| loses(WideRelease::by_name_alone(Planner::default()), culprit, victim);
    assert!(loses("a/web", "b/web"));
    assert!(!loses("a/web", "b/web-x"));
    assert!(!loses("a/web", "a/web-x"));
}
