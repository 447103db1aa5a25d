//! Several nodes of one kernel, as a lab has them: each knows its own programs, and leaves those of the others.

use std::{fs, thread};

use doctor::{EvictionError, Inventory, Leftovers, cleanup, evict};
use lb_abi::Config;
use lb_loader::{Datapath, Hook, Options, Ownership, programs_attached};
use nix::sched::{CloneFlags, unshare};

use super::left::{below, start};
use crate::support::{Node, isolated};

/// With a node's cgroup below the test's own.
fn lower(node: &Node) -> Options {
    Options {
        cgroup: below(&node.options.cgroup, "node"),
        ..node.options.clone()
    }
}

#[test]
fn another_nodes_programs_are_known_and_stay() {
    isolated(|node| {
        let options = lower(node);
        let neighbour = Options {
            cgroup: below(&node.options.cgroup, "neighbour"),
            bpffs: node.options.bpffs.join("neighbour"),
            ..node.options.clone()
        };
        fs::create_dir(&neighbour.bpffs).expect("a folder");
        // A node is a network namespace.
        let theirs = thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            let mut datapath = Datapath::open(&neighbour).expect("opened");
            datapath.attach().expect("attached");
            datapath
        });
        let theirs = theirs.join().expect("the other node has started");
        let (datapath, _) = start(&options, node);
        assert_eq!(crate::leftovers(&datapath), Inventory::default());
        let seen = super::look(node).attachments;
        for (hook, program) in theirs.programs() {
            let found = seen.iter().find(|found| found.program.id == program.id());
            let found = found.unwrap_or_else(|| panic!("{hook} is not listed"));
            assert_eq!(found.ownership, Ownership::OtherNode);
            assert!(matches!(
                evict(found, false),
                Err(EvictionError::NotEarlier { .. })
            ));
        }
        drop(datapath);
        let done = cleanup(&options.bpffs, &options.cgroup).expect("cleaned up");
        assert_eq!(done.detached.len(), Hook::ALL.len(), "{done:?}");
        for (hook, program) in theirs.programs() {
            let left = programs_attached(&node.options.cgroup.join("neighbour"), hook, false);
            assert_eq!(left.expect("the kernel says"), [program.id()]);
        }
    });
}

#[test]
fn a_load_that_was_seen_before_it_said_of_which_node_it_is_stays_another_nodes() {
    isolated(|node| {
        // As a lab's node has it, on a host with an agent above.
        let (datapath, _) = start(&node.options, node);
        let finder = Leftovers::of(&datapath).expect("its cgroup");
        let theirs = Options {
            cgroup: below(&node.options.cgroup, "lab"),
            bpffs: node.options.bpffs.join("lab"),
            ..node.options.clone()
        };
        fs::create_dir(&theirs.bpffs).expect("a folder");
        let theirs = thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            Datapath::open(&theirs).expect("opened")
        });
        let mut theirs = theirs.join().expect("the other node has opened");
        // CONFIG is written after the programs are loaded, and a look may come in between.
        let said = theirs.maps().config.get().expect("CONFIG");
        let unsaid = Config {
            node_netns: 0,
            ..said
        };
        theirs.maps().config.put(&unsaid).expect("written");
        assert_eq!(finder.find(&datapath).expect("a look").attachments, []);
        theirs.maps().config.put(&said).expect("written");
        theirs.attach().expect("attached");
        assert_eq!(finder.find(&datapath).expect("a look"), Inventory::default());
    });
}
