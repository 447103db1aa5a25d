//! Incident 1: every history of the affected release, with everything kept.

use reference_agent::{
    incident_one_table,
    testing::{World, incidents::Row},
};

fn everything_is_kept(row: Row) {
    let mut world = World::new();
    for event in row.history {
        world.event(event);
    }
    let served = world.served();
    for end in row.ends {
        assert_eq!(served.get(&end.frontend), Some(&end.repaired), "{}", end.frontend);
    }
    world.assert_clean();
}

incident_one_table!(everything_is_kept);
