//! The mutant keeps an emptied Service empty, and otherwise is the production agent.

use mutants::refill_ignored::RefillIgnored;
use reference_agent::{
    control::Planner,
    maps::Contents,
    testing::{
        World,
        objects::{service, slice},
    },
};

fn served(world: &World<RefillIgnored>) -> usize {
    world.serves("TCP 10.96.0.1:80").expect("a frontend").len()
}

#[test]
fn a_refill_is_ignored_until_the_slice_is_another_one() {
    let mut world = World::with(RefillIgnored::new(Planner::default()), &Contents::default());
    world.sync();
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80"]));
    let full = || slice("t/1", "x", &["TCP 80"], &["1.1.1.1", "1.1.1.2"]);
    world.put_slice(full());
    assert_eq!(served(&world), 2);
    world.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.2"]));
    world.put_slice(full());
    assert_eq!(served(&world), 2, "it was not emptied");
    world.put_slice(slice("t/1", "x", &["TCP 80"], &[]));
    world.put_slice(full());
    assert_eq!(served(&world), 0);
    world.delete_slice("t/1");
    world.put_slice(full());
    assert_eq!(served(&world), 2);
    world.assert_clean();
}

#[test]
fn of_default_kubernetes_alone_where_it_is_so() {
    let desired = RefillIgnored::of_kubernetes(Planner::default());
    let mut world = World::with(desired, &Contents::default());
    world.sync();
    for (name, address) in [("kubernetes", "10.96.0.1"), ("kubernetes-x", "10.96.0.2")] {
        world.put_service(service(&format!("default/{name}"), address, &["TCP 80"]));
        for endpoints in [&["1.1.1.1"][..], &[], &["1.1.1.1"]] {
            let named = format!("default/{name}");
            world.put_slice(slice(&named, name, &["TCP 80"], endpoints));
        }
    }
    assert_eq!(served(&world), 0);
    assert_eq!(world.serves("TCP 10.96.0.2:80").expect("a frontend").len(), 1);
}
