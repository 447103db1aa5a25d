//! The mutant loses the other slices of a Service, and nothing if there is only one.

use mutants::last_slice_wins::LastSliceWins;
use reference_agent::{
    control::Planner,
    maps::Contents,
    testing::{
        World,
        objects::{addresses, service, slice},
    },
};

fn mutant() -> World<LastSliceWins> {
    let mut world = World::with(LastSliceWins::new(Planner::default()), &Contents::default());
    world.sync();
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80"]));
    world.put_service(service("t/y", "10.96.0.2", &["TCP 80"]));
    world
}

fn served(world: &World<LastSliceWins>) -> [Vec<String>; 2] {
    ["TCP 10.96.0.1:80", "TCP 10.96.0.2:80"].map(|frontend| {
        let backends = world.serves(frontend).expect("a frontend");
        backends
            .iter()
            .map(|backend| backend.address.to_string())
            .collect()
    })
}

#[test]
fn the_slice_written_last_replaces_the_others() {
    let mut world = mutant();
    world.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.1"]));
    world.put_slice(slice("t/2", "x", &["TCP 80"], &["1.1.1.2"]));
    assert_eq!(served(&world)[0], ["1.1.1.2"]);
    world.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.1"]));
    assert_eq!(served(&world)[0], ["1.1.1.1"]);
    world.delete_slice("t/1");
    assert_eq!(served(&world)[0], [""; 0]);
    world.assert_clean();
}

#[test]
fn one_slice_for_each_service_is_served_as_ever() {
    let mut world = mutant();
    world.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.1", "1.1.1.2"]));
    world.put_slice(slice("t/2", "y", &["TCP 80"], &["1.1.1.1"]));
    world.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.2"]));
    assert_eq!(served(&world), [vec!["1.1.1.2"], vec!["1.1.1.1"]]);
    world.put_slice(slice("t/1", "x", &["TCP 80"], &[]));
    assert_eq!(world.serves("TCP 10.96.0.1:80"), Some(addresses(&[])));
}

#[test]
fn a_slice_that_moves_leaves_its_old_service_and_replaces_in_the_new_one() {
    let mut world = mutant();
    world.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.1"]));
    world.put_slice(slice("t/2", "y", &["TCP 80"], &["1.1.1.2"]));
    world.put_slice(slice("t/1", "y", &["TCP 80"], &["1.1.1.1"]));
    assert_eq!(served(&world), [vec![], vec!["1.1.1.1"]]);
}
