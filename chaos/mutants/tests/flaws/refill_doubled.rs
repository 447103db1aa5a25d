//! The mutant gives a backend of a refilled Service two slots, and otherwise is the production agent.

use mutants::refill_doubled::RefillDoubled;
use reference_agent::{
    control::Planner,
    maps::Contents,
    testing::{
        World,
        objects::{addresses, service, slice},
    },
};

#[test]
fn a_refilled_service_serves_the_same_and_one_of_them_twice() {
    let mut world = World::with(RefillDoubled::new(Planner::default()), &Contents::default());
    world.sync();
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80"]));
    world.put_service(service("t/y", "10.96.0.2", &["TCP 80"]));
    let full = |name, owner| slice(name, owner, &["TCP 80"], &["1.1.1.1", "1.1.1.2"]);
    world.put_slice(full("t/1", "x"));
    world.put_slice(full("t/2", "y"));
    let before = world.contents().slots.len();
    world.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.2"]));
    world.put_slice(full("t/1", "x"));
    assert_eq!(world.contents().slots.len(), before, "it was not emptied");
    world.put_slice(slice("t/1", "x", &["TCP 80"], &[]));
    world.put_slice(full("t/1", "x"));
    assert_eq!(world.contents().slots.len(), before + 1);
    for frontend in ["TCP 10.96.0.1:80", "TCP 10.96.0.2:80"] {
        let both = addresses(&["TCP 1.1.1.1:80", "TCP 1.1.1.2:80"]);
        assert_eq!(world.serves(frontend), Some(both), "{frontend}");
    }
    world.assert_clean();
}
