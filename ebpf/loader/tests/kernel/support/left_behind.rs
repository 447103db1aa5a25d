//! Programs that a load leaves behind.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use lb_loader::{ALLOW_MULTI, Datapath, HeldProgram, Hook, attach_legacy, programs_attached};

use super::Node;

/// The programs of a load, by hook.
pub(crate) fn hold(datapath: &Datapath) -> Vec<(Hook, HeldProgram)> {
    datapath
        .programs()
        .map(|(hook, program)| (hook, HeldProgram::by_id(program.id()).expect("it is loaded")))
        .collect()
}

/// Ids of the programs at a hook of the node's cgroup.
pub(crate) fn attached(node: &Node, hook: Hook) -> Vec<u32> {
    programs_attached(&node.options.cgroup, hook, false).expect("the kernel says")
}

/// A datapath whose programs are then attached the legacy way too, and all its pins removed: what
/// is left runs on its own, with maps that are not written any more. Returns the programs.
pub(crate) fn leave_behind(node: &Node) -> Vec<(Hook, HeldProgram)> {
    let datapath = node.start();
    let held = hold(&datapath);
    for (hook, program) in &held {
        attach_legacy(&node.options.cgroup, *hook, program, ALLOW_MULTI).expect("attached the legacy way");
    }
    drop(datapath);
    fs::remove_dir_all(node.options.bpffs.join("plumbline")).expect("unpinned");
    // The links end when a worker of the kernel comes to them.
    let deadline = Instant::now() + testing::patience::LIMIT;
    while held
        .iter()
        .any(|(hook, program)| attached(node, *hook) != [program.id()])
    {
        assert!(
            Instant::now() < deadline,
            "links without pin or holder stay attached"
        );
        thread::sleep(Duration::from_millis(1));
    }
    held
}
