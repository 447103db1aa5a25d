//! The node of all tables can be made again and again, beside others.

use lb_packets::test_node::TestNode;

#[test]
fn a_test_node_can_be_entered_and_left_again_and_again() {
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    let namespace = || std::fs::read_link("/proc/thread-self/ns/net").expect("the thread's namespace");
    let before = namespace();
    for _ in 0..2 {
        let node = TestNode::enter().expect("a node");
        assert_ne!(namespace(), before);
        drop(node);
        assert_eq!(namespace(), before);
    }
}
