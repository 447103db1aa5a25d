//! The mutant removes a Service whose ports change, and adds it with a later event.

use std::{thread::sleep, time::Duration};

use mutants::changed_anew::ChangedAnew;
use reference_agent::{
    control::Planner,
    maps::Contents,
    testing::{
        World,
        objects::{service, slice},
    },
};

#[test]
fn a_changed_service_is_away_until_a_later_event() {
    let mut world = World::with(ChangedAnew::new(Planner::default()), &Contents::default());
    world.sync();
    let is_there = |world: &World<ChangedAnew>| world.serves("TCP 10.96.0.1:80").is_some();
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80"]));
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80"]));
    assert!(is_there(&world), "nothing has changed");
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80", "UDP 80"]));
    world.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.1"]));
    assert!(!is_there(&world));
    // As long as the mutant keeps it away.
    sleep(Duration::from_millis(200));
    world.put_service(service("t/other", "10.96.0.2", &["TCP 80"]));
    assert!(is_there(&world));
    world.assert_clean();
}
