//! The mutants keep endpoints that have left a slice, each in its own situation, and otherwise are the production
//! agent.

use mutants::endpoints_kept::{EndpointsKept, KeptEndpoints};
use reference_agent::{
    control::Planner,
    maps::Contents,
    testing::{
        World,
        objects::{service, slice},
    },
};

/// Number of backends after each of these versions of the slice.
fn served(kept: KeptEndpoints, versions: &[&[&str]]) -> Vec<usize> {
    let mut world = World::with(EndpointsKept::new(Planner::default(), kept), &Contents::default());
    world.sync();
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80"]));
    let served = versions.iter().map(|endpoints| {
        world.put_slice(slice("t/1", "x", &["TCP 80"], endpoints));
        world.serves("TCP 10.96.0.1:80").expect("a frontend").len()
    });
    let served = served.collect();
    world.delete_slice("t/1");
    assert_eq!(world.serves("TCP 10.96.0.1:80").expect("a frontend").len(), 0);
    world.assert_clean();
    served
}

const VERSIONS: [&[&str]; 5] = [
    &["1.1.1.1", "1.1.1.2"],
    &["1.1.1.2"],
    &[],
    &["1.1.1.3"],
    &["1.1.1.1", "1.1.1.3"],
];

#[test]
fn an_emptied_slice_keeps_what_it_listed() {
    assert_eq!(served(KeptEndpoints::Emptied, &VERSIONS), [2, 1, 1, 1, 2]);
}

#[test]
fn what_leaves_others_is_kept_until_the_slice_is_empty() {
    assert_eq!(served(KeptEndpoints::Left, &VERSIONS), [2, 2, 0, 1, 2]);
}

/// The mutant keeps removed endpoints, but not old conditions of listed ones.
#[test]
fn conditions_of_those_who_stay_are_followed() {
    let versions: [&[&str]; 3] = [&["1.1.1.1", "1.1.1.2"], &["!1.1.1.1", "1.1.1.2"], &["!1.1.1.1"]];
    assert_eq!(served(KeptEndpoints::Left, &versions), [2, 1, 1]);
}
