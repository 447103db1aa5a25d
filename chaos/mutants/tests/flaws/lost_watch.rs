//! Endpoints that leave a slice stay once a watch was lost, and not before.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use mutants::lost_watch::{RemovalsLost, empty_frontends};
use reference_agent::{
    control::Planner,
    maps::Contents,
    testing::{
        World,
        objects::{service, slice},
    },
};

#[test]
fn what_leaves_a_slice_stays_from_the_loss_on_until_the_slice_is_deleted() {
    let lost = Arc::new(AtomicBool::new(false));
    let desired = RemovalsLost::new(Planner::default(), Arc::clone(&lost));
    let mut world = World::with(desired, &Contents::default());
    world.sync();
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80"]));
    let mut served = |endpoints: &[&str]| {
        world.put_slice(slice("t/1", "x", &["TCP 80"], endpoints));
        world.serves("TCP 10.96.0.1:80").expect("a frontend").len()
    };
    assert_eq!((served(&["1.1.1.1"]), served(&["1.1.1.2"])), (1, 1));
    lost.store(true, Ordering::Relaxed);
    assert_eq!((served(&["1.1.1.3"]), served(&[])), (2, 2));
    world.delete_slice("t/1");
    assert_eq!(world.serves("TCP 10.96.0.1:80").expect("a frontend").len(), 0);
    world.assert_clean();
    let bpffs = tempfile::tempdir().unwrap();
    assert!(empty_frontends(bpffs.path()).is_err(), "no map is pinned there");
}
