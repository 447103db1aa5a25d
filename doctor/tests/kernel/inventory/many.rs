//! A thousand cgroups, and what a look at them costs.

use std::time::Duration;

use doctor::{CgroupState, Inventory, Leftovers, Place};
use lb_loader::{ALLOW_MULTI, attach_legacy};
use nix::{
    sys::resource::{Resource, getrlimit, setrlimit},
    time::ClockId,
};

use super::{
    left::{Earlier, below, evict_all, inode, start},
    look,
};
use crate::support::isolated;

/// A large node's.
const CGROUPS: usize = 1000;
/// Descriptors that a look has to do with: a quarter of the usual soft limit.
const DESCRIPTORS: u64 = 256;
/// Far more than a look takes: an agent looks every other second.
const MOST: Duration = Duration::from_secs(2);

/// How much of a processor something takes, said so: on a machine that does much else it waits for one.
fn timed<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let used = || {
        Duration::from(
            ClockId::CLOCK_THREAD_CPUTIME_ID
                .now()
                .expect("a clock of every thread"),
        )
    };
    let before = used();
    let result = run();
    let took = used() - before;
    println!("{what}: {} µs", took.as_micros());
    assert!(took < MOST, "{what}: {took:?}");
    result
}

#[test]
fn a_leftover_at_the_last_of_a_thousand_cgroups_is_found_in_time() {
    isolated(|node| {
        let pods: Vec<_> = (0..CGROUPS)
            .map(|pod| below(&node.options.cgroup, &format!("pod{pod}")))
            .collect();
        let earlier = Earlier::load(&node.options, node);
        let (hook, program) = &earlier.programs[0];
        let (hook, id) = (*hook, program.id());
        let last = pods.last().expect("a thousand");
        attach_legacy(last, hook, program, ALLOW_MULTI).expect("attached");
        let (datapath, _) = start(&node.options, node);
        drop(earlier);
        // No more than one of them is open at a time, whatever else the datapath holds.
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit of descriptors");
        setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS.min(soft), hard).expect("a lower one");
        let finder = Leftovers::of(&datapath).expect("its cgroup");
        let left = timed("leftovers, one of a thousand", || {
            finder.find(&datapath).expect("a look")
        });
        let [found] = &left.attachments[..] else {
            panic!("expected one: {left:?}");
        };
        assert!(
            matches!(&found.place, Place::Cgroup { id, state: CgroupState::Visible, attach_type, .. }
                if *id == inode(last) && *attach_type == hook.attach_type()),
            "{found:?}"
        );
        let all = timed("inventory of all hooks, pins and holders", || look(node));
        let here = all
            .attachments
            .iter()
            .filter(|found| found.program.id == id)
            .count();
        assert_eq!(here, 1);
        evict_all(&datapath);
        let none = timed("leftovers, none", || finder.find(&datapath).expect("a look"));
        assert_eq!(none, Inventory::default());
    });
}
