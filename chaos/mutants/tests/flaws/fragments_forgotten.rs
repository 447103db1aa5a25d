//! The mutant forgets continuously, but not before it is attached.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use mutants::fragments_forgotten::{empty_fragments, fragments_forgotten};
use reference_agent::{datapath::Datapath as _, testing::node::Node};

/// Longer than on any machine.
const LOOKS: usize = 1000;

#[test]
fn fragments_are_forgotten_once_it_is_attached_and_again() {
    let node = Node::new();
    let forgotten = Arc::new(AtomicU32::new(0));
    let counted = forgotten.clone();
    let mut datapath = fragments_forgotten(node.open(), move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    thread::sleep(Duration::from_millis(50));
    assert_eq!(forgotten.load(Ordering::Relaxed), 0);
    for _ in 0..2 {
        datapath.attach().unwrap();
    }
    let again = (0..LOOKS).any(|_| {
        thread::sleep(Duration::from_millis(10));
        forgotten.load(Ordering::Relaxed) > 2
    });
    assert!(again);
}

#[test]
fn where_no_map_is_pinned_none_is_emptied() {
    let bpffs = tempfile::tempdir().unwrap();
    assert!(empty_fragments(bpffs.path()).is_err());
}
