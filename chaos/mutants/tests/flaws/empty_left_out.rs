//! The mutant has no frontends without backends.

use mutants::empty_left_out::EmptyLeftOut;
use reference_agent::{
    control::Planner,
    maps::Contents,
    testing::{
        World,
        objects::{service, slice},
    },
};

#[test]
fn a_service_is_in_the_maps_while_it_has_endpoints() {
    let mut world = World::with(EmptyLeftOut::new(Planner::default()), &Contents::default());
    world.sync();
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80"]));
    assert_eq!(world.serves("TCP 10.96.0.1:80"), None);
    world.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.1"]));
    assert_eq!(world.serves("TCP 10.96.0.1:80").expect("a frontend").len(), 1);
    world.put_slice(slice("t/1", "x", &["TCP 80"], &[]));
    assert_eq!(world.serves("TCP 10.96.0.1:80"), None);
}
