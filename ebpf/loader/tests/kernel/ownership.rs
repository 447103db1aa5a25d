//! What is found attached to the node's own cgroup, and whose it is.

use std::{
    collections::BTreeSet,
    fs,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
};

use lb_loader::{
    ALLOW_MULTI, Attachment, Datapath, HeldProgram, Hook, Ownership, attach_legacy, detach_legacy,
    programs_attached,
};

use crate::support::{ForeignProgram, Protocol, attached, hold, isolated, leave_behind, switch};

fn scan(datapath: &Datapath) -> Vec<Attachment> {
    datapath.scan().expect("what is attached")
}

fn owned_by(attachments: &[Attachment], ownership: Ownership) -> Vec<(Hook, u32, bool)> {
    let of = attachments
        .iter()
        .filter(|attachment| attachment.ownership == ownership);
    of.map(|attachment| {
        (
            attachment.hook,
            attachment.program_id,
            attachment.link_id.is_some(),
        )
    })
    .collect()
}

#[test]
fn everything_of_a_fresh_start_is_current() {
    isolated(|node| {
        let datapath = node.start();
        let found = scan(&datapath);
        let expected: Vec<(Hook, u32, bool)> = datapath
            .programs()
            .map(|(hook, program)| (hook, program.id(), true))
            .collect();
        assert_eq!(owned_by(&found, Ownership::Current), expected);
        assert_eq!(found.len(), expected.len(), "{found:?}");
    });
}

#[test]
fn the_same_program_attached_both_ways_is_found_twice() {
    isolated(|node| {
        let earlier = node.start();
        let (hook, program) = hold(&earlier).swap_remove(0);
        attach_legacy(&node.options.cgroup, hook, &program, ALLOW_MULTI).expect("attached the legacy way");
        fs::remove_dir_all(node.options.bpffs.join("plumbline")).expect("unpinned");
        let datapath = node.start();
        let mut found = owned_by(&scan(&datapath), Ownership::Earlier);
        found.retain(|(at, ..)| *at == hook);
        found.sort_unstable();
        assert_eq!(found, [(hook, program.id(), false), (hook, program.id(), true)]);
        drop(earlier);
    });
}

#[test]
fn programs_of_the_cgroups_above_are_shown_as_effective_only() {
    isolated(|node| {
        let datapath = node.start();
        let below = node.options.cgroup.join("below");
        fs::create_dir(&below).expect("a cgroup");
        for (hook, program) in datapath.programs() {
            assert_eq!(
                programs_attached(&below, hook, false).expect("the kernel says"),
                []
            );
            assert_eq!(
                programs_attached(&below, hook, true).expect("the kernel says"),
                [program.id()]
            );
        }
        fs::remove_dir(&below).expect("removed");
    });
}

#[test]
fn a_legacy_attachment_is_undone_once() {
    isolated(|node| {
        let program = ForeignProgram::load(Hook::Connect4, &[]).0;
        assert!(!detach_legacy(&node.options.cgroup, Hook::Connect4, &program).expect("nothing to detach"));
        attach_legacy(&node.options.cgroup, Hook::Connect4, &program, ALLOW_MULTI).expect("attached");
        assert_eq!(attached(node, Hook::Connect4), [program.id()]);
        assert!(detach_legacy(&node.options.cgroup, Hook::Connect4, &program).expect("detached"));
        assert_eq!(attached(node, Hook::Connect4), []);
    });
}

#[test]
fn two_loads_have_equal_tags_and_distinct_maps() {
    isolated(|node| {
        let held = leave_behind(node);
        let datapath = node.start();
        switch(&datapath, Protocol::Tcp, 80, 1, &[]);
        for ((_, earlier), (_, program)) in held.iter().zip(datapath.programs()) {
            assert_eq!(earlier.tag(), program.tag());
            assert!(
                earlier.is_ours().expect("its maps are read")
                    && program.is_ours().expect("its maps are read")
            );
            assert!(
                earlier.map_ids().iter().all(|id| !program.map_ids().contains(id)),
                "no map is shared"
            );
        }
    });
}

#[test]
fn whoever_looks_at_programs_while_they_are_loaded_sees_whose_they_are() {
    /// More than are loaded meanwhile, by this test and all that run beside it.
    const NEXT: u32 = 1024;
    isolated(|node| {
        let before = ForeignProgram::load(Hook::ALL[0], &[]).0.id();
        let (done, rounds) = (AtomicBool::new(false), AtomicU32::new(0));
        let (datapath, foreign) = thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let (mut looked, mut foreign) = (BTreeSet::new(), BTreeSet::new());
                while !done.load(Ordering::Relaxed) {
                    for id in before + 1..before + NEXT {
                        // One that goes meanwhile is none of those that are waited for.
                        if let Ok(program) = HeldProgram::by_id(id)
                            && looked.insert(id)
                            && !program.is_ours().unwrap_or(true)
                        {
                            foreign.insert(id);
                        }
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
                foreign
            });
            while rounds.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            let datapath = node.open();
            done.store(true, Ordering::Relaxed);
            (datapath, watcher.join().expect("it has watched"))
        });
        assert!(!datapath.adopted(), "its META was written just now");
        for (hook, program) in datapath.programs() {
            assert!(
                (before + 1..before + NEXT).contains(&program.id()) && !foreign.contains(&program.id()),
                "{hook}: {}",
                program.id()
            );
        }
    });
}
