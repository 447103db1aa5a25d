//! The mutant is wrong at its start alone, and heals when the victim's slice is written.

use mutants::restored_by_prefix::RestoredByPrefix;
use reference_agent::{
    control::Planner,
    maps::Contents,
    model::Event,
    testing::{
        World,
        objects::{service, slice},
        synced,
    },
};

/// Three Services with one backend, the first of which is emptied; both lists have synced at the end.
fn lists() -> Vec<Event> {
    let objects = [
        Event::ServiceApplied(service("a/t", "10.96.0.1", &["TCP 80"])),
        Event::ServiceApplied(service("a/t-ext", "10.96.0.2", &["TCP 80"])),
        Event::ServiceApplied(service("a/other", "10.96.0.3", &["TCP 80"])),
        Event::SliceApplied(slice("a/1", "t", &["TCP 80"], &[])),
        Event::SliceApplied(slice("a/2", "t-ext", &["TCP 80"], &["1.1.1.1"])),
        Event::SliceApplied(slice("a/3", "other", &["TCP 80"], &["1.1.1.1"])),
    ];
    objects.into_iter().chain(synced()).collect()
}

fn served(world: &World<RestoredByPrefix>) -> [usize; 3] {
    ["TCP 10.96.0.1:80", "TCP 10.96.0.2:80", "TCP 10.96.0.3:80"]
        .map(|frontend| world.serves(frontend).expect("a frontend").len())
}

fn start(contents: &Contents) -> World<RestoredByPrefix> {
    World::with(RestoredByPrefix::new(Planner::default()), contents)
}

#[test]
fn a_start_takes_from_those_whose_names_an_empty_service_begins() {
    let mut world = start(&Contents::default());
    world.sync();
    for event in lists() {
        world.event(event);
    }
    assert_eq!(served(&world), [0, 1, 1], "while it runs it makes no mistake");
    let mut world = start(&world.contents());
    for event in lists() {
        world.event(event);
    }
    world.settle();
    assert_eq!(served(&world), [0, 0, 1]);
    world.put_service(service("a/t-ext", "10.96.0.2", &["TCP 80"]));
    assert_eq!(served(&world), [0, 0, 1]);
    world.put_slice(slice("a/2", "t-ext", &["TCP 80"], &["1.1.1.1"]));
    assert_eq!(served(&world), [0, 1, 1]);
    world.assert_clean();
}
