//! What is listed, in which order, with whom it belongs to and who holds it.

use std::process;

use doctor::{Inventory, Manner, Place};
use lb_loader::{Hook, Ownership};

use super::{at_own, look};
use crate::support::isolated;

#[test]
fn a_fresh_start_is_current_pinned_held_and_leaves_nothing() {
    isolated(|node| {
        let datapath = node.start();
        let seen = look(node);
        let found = at_own(node, &seen);
        assert_eq!(found.len(), Hook::ALL.len(), "{found:?}");
        for (hook, program) in datapath.programs() {
            let at = found
                .iter()
                .find(|found| found.program.id == program.id())
                .expect("it is attached");
            assert!(
                matches!(at.place, Place::Cgroup { attach_type, .. } if attach_type == hook.attach_type()),
                "{at:?}"
            );
            assert_eq!((at.order, at.ownership), (0, Ownership::Current));
            let Manner::Link {
                pinned_at, held_by, ..
            } = &at.manner
            else {
                panic!("expected a link, got {at:?}");
            };
            assert_eq!(*pinned_at, [node.pins("links").join(hook.name())]);
            let pids: Vec<u32> = held_by.iter().map(|holder| holder.pid).collect();
            assert_eq!(pids, [process::id()]);
            let names: Vec<&str> = at.program.maps.iter().map(|map| map.name.as_str()).collect();
            assert!(names.contains(&"META"), "{names:?}");
        }
        assert_eq!(crate::leftovers(&datapath), Inventory::default());
    });
}
