//! The mutants misread session affinity, and leave Services without it alone.

use mutants::affinity_misread::{AffinityMisread, MisreadsAffinity};
use reference_agent::{
    control::{DesiredState, Planner},
    maps::Contents,
    model::{Event, Service},
    testing::{
        World,
        objects::{name, service, slice},
    },
};

fn with_affinity(seconds: u32) -> Service {
    Service {
        affinity_seconds: seconds,
        ..service("t/x", "10.96.0.1", &["TCP 80"])
    }
}

/// The timeout that the agent has for a Service with this one.
fn timeout(misread: AffinityMisread, seconds: u32) -> u32 {
    let mut mutant = MisreadsAffinity::new(Planner::default(), misread);
    mutant.apply(Event::ServiceApplied(with_affinity(seconds)));
    let model = mutant.model();
    let id = model.id(&name("t/x")).expect("it is known");
    model.service(id).expect("it is there").affinity_seconds
}

#[test]
fn timeouts_are_ignored_or_the_longest() {
    let all = |seconds| {
        let of = |misread| timeout(misread, seconds);
        [
            AffinityMisread::Ignored,
            AffinityMisread::Endless,
            AffinityMisread::Loyal,
        ]
        .map(of)
    };
    assert_eq!(all(10), [0, 86_400, 10]);
    assert_eq!(all(0), [0, 0, 0]);
}

#[test]
fn endpoints_stay_with_a_service_that_has_affinity() {
    let served = |seconds| {
        let mutant = MisreadsAffinity::new(Planner::default(), AffinityMisread::Loyal);
        let mut world = World::with(mutant, &Contents::default());
        world.sync();
        world.put_service(with_affinity(seconds));
        let versions: [&[&str]; 3] = [&["1.1.1.1"], &["!1.1.1.1", "1.1.1.2"], &["1.1.1.2"]];
        versions.map(|endpoints| {
            world.put_slice(slice("t/1", "x", &["TCP 80"], endpoints));
            world.serves("TCP 10.96.0.1:80").expect("a frontend").len()
        })
    };
    assert_eq!(served(10), [1, 2, 2]);
    assert_eq!(served(0), [1, 1, 1]);
}
