//! The mutant only knows the first names of slices, and otherwise is the production agent.

use mutants::rewritten_ignored::RewrittenIgnored;
use reference_agent::{
    control::Planner,
    maps::Contents,
    model::Slice,
    testing::{
        World,
        objects::{service, slice},
    },
};

fn served(world: &World<RewrittenIgnored>) -> usize {
    world.serves("TCP 10.96.0.1:80").expect("a frontend").len()
}

fn of(name: &str, address: &str) -> Slice {
    slice(name, "x", &["TCP 80"], &[address])
}

#[test]
fn a_slice_with_another_name_is_ignored_after_one_was_deleted_until_the_service_is_another_one() {
    let mut world = World::with(RewrittenIgnored::new(Planner::default()), &Contents::default());
    world.sync();
    let put = |world: &mut World<_>| world.put_service(service("t/x", "10.96.0.1", &["TCP 80"]));
    put(&mut world);
    world.put_slice(of("t/1", "1.1.1.1"));
    world.put_slice(of("t/2", "1.1.1.2"));
    assert_eq!(served(&world), 2, "nothing was deleted yet");
    world.delete_slice("t/1");
    assert_eq!(served(&world), 1);
    world.put_slice(of("t/3", "1.1.1.3"));
    assert_eq!(served(&world), 1);
    world.put_slice(of("t/1", "1.1.1.1"));
    assert_eq!(served(&world), 2, "the old name is known");
    world.put_slice(slice("t/other", "y", &["TCP 80"], &["1.1.1.4"]));
    world.delete_service("t/x");
    put(&mut world);
    world.put_slice(of("t/3", "1.1.1.3"));
    assert_eq!(served(&world), 3);
    world.assert_clean();
}
