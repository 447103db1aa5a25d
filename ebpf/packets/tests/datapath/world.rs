//! The world that all tables stand in can be made, again and again, beside others.

use lb_packets::world::World;

#[test]
fn a_world_can_be_entered_and_left_again_and_again() {
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    let namespace = || std::fs::read_link("/proc/thread-self/ns/net").expect("the thread's namespace");
    let before = namespace();
    for _ in 0..2 {
        let world = World::enter().expect("a world");
        assert_ne!(namespace(), before);
        drop(world);
        assert_eq!(namespace(), before);
    }
}
