//! The mutant leaves out the first Services while there are too many endpoints.

use mutants::oldest_displaced::OldestDisplaced;
use reference_agent::{
    control::Planner,
    maps::Contents,
    testing::{
        World,
        objects::{service, slice},
    },
};

#[test]
fn the_first_service_is_served_again_once_there_is_room() {
    let planner = OldestDisplaced::holding(Planner::default(), 3);
    let mut world = World::with(planner, &Contents::default());
    world.sync();
    let addresses = ["10.0.0.1", "10.0.0.2"];
    for (name, cluster_ip) in [("one", "10.96.0.1"), ("two", "10.96.0.2")] {
        let full = format!("t/{name}");
        world.put_service(service(&full, cluster_ip, &["TCP 80"]));
        world.put_slice(slice(&full, name, &["TCP 80"], &addresses));
    }
    assert!(world.serves("TCP 10.96.0.1:80").is_none());
    assert!(world.serves("TCP 10.96.0.2:80").is_some());
    world.delete_service("t/two");
    assert!(world.serves("TCP 10.96.0.1:80").is_some());
    world.assert_clean();
}
