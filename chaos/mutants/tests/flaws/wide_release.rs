//! Releases that take too much: from which Services, and from which not.

use mutants::wide_release::WideRelease;
use reference_agent::{
    control::Planner,
    maps::Contents,
    testing::{
        World,
        objects::{service, slice},
    },
};

/// Whether the second Service loses the backend that it shares with the first, after the first is emptied and the
/// second has an event of its own.
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

/// Two Services with the same address, each with several ports of its own.
fn neighbours(mutant: WideRelease) -> World<WideRelease> {
    let mut world = World::with(mutant, &Contents::default());
    world.sync();
    world.put_service(service("a/one", "10.96.0.1", &["TCP 80", "UDP 80 dns"]));
    world.put_service(service("a/two", "10.96.0.2", &["TCP 80"]));
    world.put_slice(slice("a/tcp", "one", &["TCP 8080"], &["1.1.1.1"]));
    world.put_slice(slice("a/udp", "one", &["UDP 8080 dns"], &["1.1.1.1"]));
    world.put_slice(slice("a/two", "two", &["TCP 9090"], &["1.1.1.1", "1.1.1.2"]));
    world
}

#[test]
fn by_address_it_takes_other_ports_and_protocols_of_its_own_and_of_others() {
    let mut world = neighbours(WideRelease::by_address(Planner::default()));
    let serves =
        |world: &World<WideRelease>, frontend: &str| world.serves(frontend).expect("a frontend").len();
    world.put_slice(slice("a/tcp", "one", &["TCP 8080"], &[]));
    assert_eq!(serves(&world, "UDP 10.96.0.1:80"), 1, "not before its own event");
    world.put_service(service("a/one", "10.96.0.1", &["TCP 80", "UDP 80 dns"]));
    world.put_service(service("a/two", "10.96.0.2", &["TCP 80"]));
    assert_eq!(serves(&world, "UDP 10.96.0.1:80"), 0);
    assert_eq!(serves(&world, "TCP 10.96.0.2:80"), 1, "the other address stays");
    world.assert_clean();
}

#[test]
fn by_address_it_takes_nothing_of_the_same_port() {
    assert!(!loses(
        WideRelease::by_address(Planner::default()),
        "a/t",
        "a/t-ext"
    ));
    assert!(loses(
        WideRelease::by_prefix(Planner::default()),
        "a/t",
        "a/t-ext"
    ));
}

#[test]
fn outside_it_shows_at_all_frontends_but_the_cluster_ip() {
    let victim = || reference_agent::model::Service {
        external_ips: vec!["192.0.2.1".parse().unwrap()],
        ..service("a/t-ext", "10.96.0.2", &["TCP 80"])
    };
    let mut world = World::with(
        WideRelease::by_prefix_outside(Planner::default()),
        &Contents::default(),
    );
    world.sync();
    world.put_service(service("a/t", "10.96.0.1", &["TCP 80"]));
    world.put_service(victim());
    world.put_slice(slice("a/1", "t", &["TCP 80"], &["1.1.1.1"]));
    world.put_slice(slice("a/2", "t-ext", &["TCP 80"], &["1.1.1.1", "1.1.1.2"]));
    let served = |world: &World<WideRelease>| {
        ["TCP 10.96.0.2:80", "TCP 192.0.2.1:80"]
            .map(|frontend| world.serves(frontend).expect("a frontend").len())
    };
    world.put_slice(slice("a/1", "t", &["TCP 80"], &[]));
    world.put_service(service("a/t", "10.96.0.1", &["TCP 80"]));
    assert_eq!(served(&world), [2, 2], "not before its own event");
    world.put_service(victim());
    assert_eq!(served(&world), [2, 1]);
    world.put_slice(slice("a/2", "t-ext", &["TCP 80"], &["1.1.1.1", "1.1.1.2"]));
    assert_eq!(served(&world), [2, 2], "its slice heals");
    world.assert_clean();
}
