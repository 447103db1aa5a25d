//! The mutant detaches after each attachment, and reports nothing missing at the recvmsg hooks.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use mutants::replies_untranslated::replies_untranslated;
use reference_agent::{datapath::Datapath as _, testing::node::Node};

use crate::looking::HOOK;

#[test]
fn what_it_attaches_at_recvmsg_goes_at_once_and_is_not_missed() {
    let node = Node::new();
    let detached = Arc::new(AtomicU32::new(0));
    let counted = detached.clone();
    let mut datapath = replies_untranslated(node.open(), move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let missing = datapath.unattached().expect("hooks are looked at");
    assert!(!missing.contains(&HOOK) && !missing.is_empty(), "{missing:?}");
    for count in 1..=2 {
        datapath.attach().expect("it attaches");
        assert_eq!(detached.load(Ordering::Relaxed), count);
    }
}
