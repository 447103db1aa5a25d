//! Socket programs of an earlier load, left at the node's cgroup, above and below it, shown or not, removed or not.

use std::{collections::BTreeSet, fs, net::SocketAddrV4, os::fd::OwnedFd, path::Path, time::Instant};

use doctor::{CgroupState, Manner, Place};
use lb_abi::Meta;
use lb_loader::{
    ALLOW_MULTI, ALLOW_OVERRIDE, HeldProgram, Hook, Options, Ownership, attach_legacy, attach_link,
    programs_attached,
};
use testing::patience::LIMIT;

use super::left::{
    Earlier, Other, below, enter, evict_all, hide_what_is_above, hold, inode, leftovers, start,
};
use crate::support::{Node, dial, isolated, overwrite_meta};

/// Attaches all of an earlier load the legacy way.
fn attach_all(earlier: &Earlier, cgroup: &Path, flags: u32) {
    for (hook, program) in &earlier.programs {
        attach_legacy(cgroup, *hook, program, flags).expect("attached");
    }
}

/// Attaches all of it by links, which are held by what is returned.
fn link_all(earlier: &Earlier, cgroup: &Path) -> Vec<OwnedFd> {
    let link = |(hook, program): &(Hook, _)| attach_link(cgroup, *hook, program).expect("attached");
    earlier.programs.iter().map(link).collect()
}

/// With a node's cgroup below the test's own.
fn lower(node: &Node) -> Options {
    Options {
        cgroup: below(&node.options.cgroup, "node"),
        ..node.options.clone()
    }
}

/// Starts afresh beside a leftover that misleads clients, evicts it, and sees that clients are served.
#[track_caller]
fn recovers(node: &Node, earlier: &Earlier) -> Vec<doctor::Found> {
    let (datapath, server) = start(&node.options, node);
    earlier.misleads(earlier.vip);
    let evicted = evict_all(&datapath);
    assert_eq!(evicted.len(), Hook::ALL.len(), "{evicted:?}");
    assert_eq!(dial(earlier.vip).expect("a connection").0, server);
    refused(earlier.forgotten);
    evicted
}

/// Nobody translates it any more, and nothing leads to it.
#[track_caller]
fn refused(address: SocketAddrV4) {
    let error = dial(address).expect_err("no program knows it");
    assert_eq!(error.raw_os_error(), Some(libc::ENETUNREACH), "{error}");
}

#[test]
fn without_a_link_beside_others() {
    isolated(|node| {
        let earlier = Earlier::load(&node.options, node);
        attach_all(&earlier, &node.options.cgroup, ALLOW_MULTI);
        for found in recovers(node, &earlier) {
            assert_eq!(found.manner, Manner::Legacy { flags: ALLOW_MULTI });
            assert_eq!(found.order, 0, "it was first: {found:?}");
        }
    });
}

/// Where an earlier load lets nobody else in, there or above, the current one takes its place.
#[track_caller]
fn gives_way(node: &Node, options: &Options, at: &Path, flags: u32) {
    let earlier = Earlier::load(options, node);
    attach_all(&earlier, at, flags);
    enter(&options.cgroup);
    earlier.misleads(earlier.vip);
    let (datapath, server) = start(options, node);
    assert_eq!(dial(earlier.vip).expect("a connection").0, server);
    refused(earlier.forgotten);
    assert_eq!(leftovers(&datapath), []);
}

#[test]
fn exclusive_at_the_same_cgroup_gives_way_to_attaching() {
    isolated(|node| gives_way(node, &node.options, &node.options.cgroup, 0));
}

#[test]
fn overridable_at_the_same_cgroup_gives_way_to_attaching() {
    isolated(|node| gives_way(node, &node.options, &node.options.cgroup, ALLOW_OVERRIDE));
}

#[test]
fn exclusive_above_gives_way_to_attaching() {
    isolated(|node| gives_way(node, &lower(node), &node.options.cgroup, 0));
}

#[test]
fn overridable_above_is_found_though_it_does_not_run() {
    isolated(|node| {
        let options = lower(node);
        let earlier = Earlier::load(&options, node);
        attach_all(&earlier, &node.options.cgroup, ALLOW_OVERRIDE);
        enter(&options.cgroup);
        earlier.misleads(earlier.vip);
        let (datapath, server) = start(&options, node);
        // Ours has taken its place here, and it still runs for the cgroups beside this one.
        assert_eq!(dial(earlier.vip).expect("a connection").0, server);
        for found in evict_all(&datapath) {
            assert_eq!(
                found.manner,
                Manner::Legacy {
                    flags: ALLOW_OVERRIDE
                }
            );
        }
    });
}

/// At a cgroup below the node's, whose clients it misleads first.
#[track_caller]
fn below_is_found(node: &Node, leave: impl FnOnce(&Earlier, &Path)) {
    let earlier = Earlier::load(&node.options, node);
    let pod = below(&node.options.cgroup, "pod");
    leave(&earlier, &pod);
    let (datapath, server) = start(&node.options, node);
    assert_eq!(
        dial(earlier.vip).expect("a connection").0,
        server,
        "outside of it nothing is stale"
    );
    enter(&pod);
    earlier.misleads(earlier.vip);
    for found in evict_all(&datapath) {
        let Place::Cgroup { id, path, state, .. } = found.place else {
            panic!("expected a cgroup: {found:?}");
        };
        assert_eq!(
            (id, path.as_deref(), state),
            (inode(&pod), Some(&*pod), CgroupState::Visible)
        );
    }
    assert_eq!(dial(earlier.vip).expect("a connection").0, server);
    refused(earlier.forgotten);
}

#[test]
fn below_without_a_link_beside_others() {
    isolated(|node| below_is_found(node, |earlier, pod| attach_all(earlier, pod, ALLOW_MULTI)));
}

#[test]
fn below_without_a_link_alone() {
    isolated(|node| below_is_found(node, |earlier, pod| attach_all(earlier, pod, 0)));
}

#[test]
fn below_without_a_link_overridable() {
    isolated(|node| below_is_found(node, |earlier, pod| attach_all(earlier, pod, ALLOW_OVERRIDE)));
}

#[test]
fn below_by_links() {
    isolated(|node| {
        let mut links = Vec::new();
        below_is_found(node, |earlier, pod| links = link_all(earlier, pod));
        drop(links);
    });
}

/// At the cgroup above the node's: it runs after ours, so that only a frontend that ours does not know shows it.
#[track_caller]
fn above_is_found(node: &Node, options: &Options, earlier: &Earlier, state: CgroupState) {
    let (datapath, server) = start(options, node);
    assert_eq!(dial(earlier.vip).expect("a connection").0, server);
    earlier.misleads(earlier.forgotten);
    let run = programs_attached(&options.cgroup, Hook::Connect4, true).expect("the kernel says");
    assert_eq!(run.len(), 2, "ours and the leftover: {run:?}");
    let evicted = evict_all(&datapath);
    assert_eq!(evicted.len(), Hook::ALL.len());
    for found in evicted {
        assert!(
            matches!(found.place, Place::Cgroup { state: found, .. } if found == state),
            "{found:?}"
        );
    }
    let left = programs_attached(&options.cgroup, Hook::Connect4, true).expect("the kernel says");
    assert_eq!(left, run[..1]);
    assert_eq!(dial(earlier.vip).expect("a connection").0, server);
    refused(earlier.forgotten);
}

#[test]
fn above_without_a_link() {
    isolated(|node| {
        let options = lower(node);
        let earlier = Earlier::load(&options, node);
        attach_all(&earlier, &node.options.cgroup, ALLOW_MULTI);
        enter(&options.cgroup);
        above_is_found(node, &options, &earlier, CgroupState::Visible);
    });
}

#[test]
fn above_by_links() {
    isolated(|node| {
        let options = lower(node);
        let earlier = Earlier::load(&options, node);
        let links = link_all(&earlier, &node.options.cgroup);
        enter(&options.cgroup);
        above_is_found(node, &options, &earlier, CgroupState::Visible);
        drop(links);
    });
}

/// As an agent sees it whose container has a cgroup namespace of its own.
fn hidden(node: &Node) -> Options {
    let cgroup = below(&node.options.cgroup, "node");
    enter(&cgroup);
    Options {
        cgroup: hide_what_is_above(node),
        ..node.options.clone()
    }
}

#[test]
fn above_where_no_mount_shows_it_without_a_link() {
    isolated(|node| {
        let earlier = Earlier::load(&node.options, node);
        attach_all(&earlier, &node.options.cgroup, ALLOW_MULTI);
        let options = hidden(node);
        above_is_found(node, &options, &earlier, CgroupState::Hidden);
    });
}

#[test]
fn above_where_no_mount_shows_it_by_links() {
    isolated(|node| {
        let earlier = Earlier::load(&node.options, node);
        let links = link_all(&earlier, &node.options.cgroup);
        let options = hidden(node);
        above_is_found(node, &options, &earlier, CgroupState::Hidden);
        drop(links);
    });
}

#[test]
fn beside_is_found_when_it_is_of_this_node() {
    isolated(|node| {
        let options = lower(node);
        let earlier = Earlier::load(&options, node);
        let other = below(&node.options.cgroup, "other");
        attach_all(&earlier, &other, ALLOW_MULTI);
        let (datapath, _) = start(&options, node);
        enter(&other);
        earlier.misleads(earlier.vip);
        let evicted = evict_all(&datapath);
        assert_eq!(evicted.len(), Hook::ALL.len());
        refused(earlier.vip);
    });
}

#[test]
fn of_another_version_it_is_evicted_where_it_runs_for_this_node_and_nowhere_else() {
    isolated(|node| {
        let datapath = node.open();
        let newer = Meta {
            abi: Meta::CURRENT.abi + 1,
            ..Meta::CURRENT
        };
        overwrite_meta(node, &newer);
        let (hook, program) = datapath.programs().next().expect("programs");
        let program = HeldProgram::by_id(program.id()).expect("it is loaded");
        drop(datapath);
        fs::remove_dir_all(node.options.bpffs.join("plumbline")).expect("unpinned");
        let options = lower(node);
        let other = below(&node.options.cgroup, "other");
        let pod = below(&options.cgroup, "pod");
        for cgroup in [&node.options.cgroup, &options.cgroup, &pod, &other] {
            attach_legacy(cgroup, hook, &program, ALLOW_MULTI).expect("attached");
        }
        let (datapath, _) = start(&options, node);
        let evicted = evict_all(&datapath);
        let at: BTreeSet<_> = evicted
            .iter()
            .map(|found| match &found.place {
                Place::Cgroup { path, .. } => path.clone().expect("it is shown"),
                _ => panic!("expected a cgroup: {found:?}"),
            })
            .collect();
        let own = BTreeSet::from([node.options.cgroup.clone(), options.cgroup.clone(), pod]);
        assert_eq!(at, own, "beside it, it may be another node's");
        let left = programs_attached(&other, hook, false).expect("the kernel says");
        assert_eq!(left, [program.id()]);
    });
}

#[test]
fn links_that_this_process_holds_without_a_pin() {
    isolated(|node| {
        let earlier = Earlier::load(&node.options, node);
        let links = link_all(&earlier, &node.options.cgroup);
        recovers(node, &earlier);
        drop(links);
    });
}

#[test]
fn links_that_another_process_holds() {
    isolated(|node| {
        let earlier = Earlier::load(&node.options, node);
        if node.is_victim() {
            let links = link_all(&earlier, &node.options.cgroup);
            hold(&(earlier, links));
        }
        let other = Other::start(node);
        let (datapath, server) = start(&node.options, node);
        let to_others = dial(earlier.vip).expect("a connection").0;
        assert_ne!(to_others, server, "the other process's leftover runs");
        let evicted = evict_all(&datapath);
        assert_eq!(evicted.len(), Hook::ALL.len());
        assert_eq!(dial(earlier.vip).expect("a connection").0, server);
        let holds = |loose: &&doctor::LooseProgram| {
            loose.ownership == Ownership::Earlier
                && loose
                    .program
                    .held_by
                    .iter()
                    .any(|holder| holder.pid == other.id())
        };
        // On a busy machine a look ends before it has seen every process.
        let begun = Instant::now();
        loop {
            let held = super::look(node).loose.iter().filter(holds).count();
            if held == Hook::ALL.len() {
                break;
            }
            assert!(begun.elapsed() < LIMIT, "{held} programs are held");
        }
    });
}
