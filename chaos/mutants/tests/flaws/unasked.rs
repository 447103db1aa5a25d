//! The mutant's node ports have no backends of other nodes, or its Services affinity; the rest is right.

use mutants::unasked::{Unasked, WithUnasked};
use reference_agent::{
    control::{DesiredState, Planner},
    maps::Contents,
    testing::{
        World,
        objects::{service, slice},
    },
};

/// Backends of the ClusterIP and of the node port, and whether frontends have affinity.
fn served(desired: impl DesiredState) -> ([usize; 2], bool) {
    let mut world = World::with(desired, &Contents::default());
    world.sync();
    world.put_slice(slice("t/1", "x", &["TCP 8080 p"], &["1.1.1.1@there"]));
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80 p @30080"]));
    world.assert_clean();
    let served =
        ["TCP 10.96.0.1:80", "TCP 0.0.0.0:30080"].map(|at| world.serves(at).map_or(0, |by| by.len()));
    let frontends = world.contents().frontends;
    (
        served,
        frontends
            .iter()
            .all(|(_, frontend)| frontend.affinity_seconds > 0),
    )
}

#[test]
fn each_has_its_own_default() {
    let mutant = |unasked| served(WithUnasked::new(Planner::default(), unasked));
    assert_eq!(served(Planner::default()), ([1, 1], false));
    assert_eq!(mutant(Unasked::Local), ([1, 0], false));
    assert_eq!(mutant(Unasked::Affinity), ([1, 1], true));
}
