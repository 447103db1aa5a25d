//! The mutant serves at addresses that the Service does not have; at its own it serves as it should.

use mutants::frontends_added::{Added, FrontendsAdded};
use reference_agent::{
    control::{DesiredState, Planner},
    maps::Contents,
    model::{Event, Host},
    testing::{
        World,
        objects::{service, slice},
    },
};

const OWN: [&str; 2] = ["TCP 10.96.0.1:80", "TCP 0.0.0.0:30080"];
const CROSSED: [&str; 2] = ["TCP 192.0.2.9:80", "TCP 10.96.0.1:30080"];
const AT_BACKENDS: [&str; 1] = ["TCP 1.1.1.1:80"];

/// Which of these are frontends.
fn served(desired: impl DesiredState) -> [Vec<bool>; 3] {
    let mut world = World::with(desired, &Contents::default());
    world.sync();
    world.put_slice(slice("t/1", "x", &["TCP 8080 p"], &["1.1.1.1"]));
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80 p @30080"]));
    world.event(Event::Host(Host {
        addresses: ["192.0.2.9".parse().expect("an address")].into(),
        probe: None,
    }));
    world.assert_clean();
    [&OWN[..], &CROSSED, &AT_BACKENDS].map(|frontends| {
        let each = frontends.iter();
        each.map(|frontend| world.serves(frontend).is_some_and(|by| by.len() == 1))
            .collect()
    })
}

#[test]
fn each_adds_its_own_frontends() {
    let mutant = |added| served(FrontendsAdded::new(Planner::default(), added));
    let is = |crossed, at_backends| [vec![true; 2], vec![crossed; 2], vec![at_backends]];
    assert_eq!(served(Planner::default()), is(false, false));
    assert_eq!(mutant(Added::Crossed), is(true, false));
    assert_eq!(mutant(Added::AtBackends), is(false, true));
}
