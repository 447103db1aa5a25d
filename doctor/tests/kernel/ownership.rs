//! What stays at the node's own cgroup, and what a clean-up leaves.

use caps::CapSet;
use doctor::{Cleanup, EvictionError, Inventory, cleanup};
use lb_loader::{ALLOW_MULTI, CraftedKind, CraftedMap, Hook, LoaderError, MapName, Ownership, attach_legacy};

use crate::{
    leftovers,
    support::{ForeignProgram, Protocol, TcpServer, attached, dial, isolated, leave_behind},
};

#[test]
fn a_foreign_program_of_the_same_name_stays() {
    isolated(|node| {
        // An array like META, but without the magic.
        let map = CraftedMap::create("META", CraftedKind::Array, (4, 16), 1).expect("an array");
        let without_map = ForeignProgram::load(Hook::Connect4, &[]);
        let with_map = ForeignProgram::load(Hook::Connect4, &[map.id()]);
        assert_eq!(with_map.0.map_ids().len(), 1);
        for foreign in [&without_map, &with_map] {
            assert_eq!(foreign.0.name(), "connect4");
            assert!(!foreign.0.is_ours().expect("its maps are read"));
            attach_legacy(&node.options.cgroup, Hook::Connect4, &foreign.0, ALLOW_MULTI).expect("attached");
        }
        let datapath = node.start();
        let mut found = datapath.scan().expect("what is attached");
        found.retain(|found| found.ownership == Ownership::Foreign);
        let found: Vec<_> = found
            .iter()
            .map(|found| (found.hook, found.program_id, found.link_id))
            .collect();
        assert_eq!(
            found,
            [
                (Hook::Connect4, without_map.0.id(), None),
                (Hook::Connect4, with_map.0.id(), None)
            ]
        );
        assert_eq!(leftovers(&datapath), Inventory::default());
        let server = TcpServer::start(1).address;
        let cluster_ip = node.service(&datapath, Protocol::Tcp, 80, &[server]);
        assert_eq!(dial(cluster_ip).expect("a connection").0, server, "both run");
        drop(datapath);
        cleanup(&node.options.bpffs, &node.options.cgroup).expect("cleaned up");
        assert_eq!(
            attached(node, Hook::Connect4),
            [without_map.0.id(), with_map.0.id()],
            "in their order"
        );
    });
}

#[test]
fn cleanup_removes_every_load_and_every_pin_and_does_so_once() {
    isolated(|node| {
        let held = leave_behind(node);
        let datapath = node.start();
        match cleanup(&node.options.bpffs, &node.options.cgroup) {
            Err(EvictionError::Loader(LoaderError::Busy { .. })) => {}
            other => panic!("expected Busy while an agent runs, got {other:?}"),
        }
        drop(datapath);
        let done = cleanup(&node.options.bpffs, &node.options.cgroup).expect("cleaned up");
        assert_eq!(
            done.detached.len(),
            2 * held.len(),
            "a legacy attachment and a link at each hook: {done:?}"
        );
        // They are held here, and could be attached again.
        assert_eq!(done.disarmed.len(), held.len(), "{done:?}");
        assert_eq!(
            done.unpinned.len(),
            MapName::PINNED.len() + Hook::ALL.len(),
            "{done:?}"
        );
        for hook in Hook::ALL {
            assert_eq!(attached(node, hook), []);
        }
        assert!(!node.options.bpffs.join("plumbline").exists());
        assert_eq!(
            cleanup(&node.options.bpffs, &node.options.cgroup).expect("again"),
            Cleanup::default()
        );
    });
}

#[test]
fn a_process_without_the_capabilities_is_told_which() {
    isolated(|node| {
        caps::clear(None, CapSet::Effective).expect("dropped");
        match cleanup(&node.options.bpffs, &node.options.cgroup) {
            Err(EvictionError::Loader(error @ LoaderError::Privileges { .. })) => {
                let text = error.to_string();
                assert!(text.contains("CAP_SYS_ADMIN and CAP_NET_ADMIN"), "{text}");
            }
            other => panic!("expected Privileges, got {other:?}"),
        }
    });
}
