//! What is found at devices, what is evicted, what stays.

use std::fs;

use doctor::{Cleanup, Found, Manner, Place, cleanup, evict};
use lb_loader::{
    Datapath, DeviceAttachment, DeviceHook, DeviceKind, DeviceManner, DeviceMode, Direction, HeldProgram,
    Ownership, attach_filter, attach_tcx,
};

use crate::{
    NO_TCX,
    disciplines::has_clsact,
    foreign_packet_program, leftovers,
    network::pair,
    start,
    support::{Node, has_tcx, isolated},
};

/// Both ways to attach; the filter's priority is no other program's.
const MODES: [DeviceMode; 2] = [DeviceMode::First, DeviceMode::Filter { priority: 77 }];

fn scan(datapath: &Datapath) -> Vec<DeviceAttachment> {
    datapath.scan_devices().expect("what is attached")
}

/// Those of an owner.
fn of(attachments: Vec<DeviceAttachment>, ownership: Ownership) -> Vec<DeviceAttachment> {
    attachments
        .into_iter()
        .filter(|attachment| attachment.ownership == ownership)
        .collect()
}

/// The ingress program of nodes of a load, held.
fn hold(datapath: &mut Datapath) -> HeldProgram {
    let program = datapath
        .device_program(DeviceHook::NodeIngress)
        .expect("it can be loaded");
    HeldProgram::by_id(program.id()).expect("it is loaded")
}

/// What an earlier load has left at a device, in each way that there is, with its pins gone. What is returned holds
/// the links.
fn leave_behind(node: &Node) -> Datapath {
    let mut earlier = start(node, DeviceMode::First);
    earlier
        .attach_device("uplink", DeviceKind::Node)
        .expect("attached by links");
    let program = hold(&mut earlier);
    attach_filter("uplink", Direction::Egress, 3, &program).expect("attached as a filter");
    let pinned = node.options.bpffs.join("plumbline");
    fs::remove_dir_all(&pinned).expect("unpinned");
    // The program of the link at ingress is there already: another load's.
    let mut other = start(node, DeviceMode::First);
    attach_tcx("uplink", Direction::Ingress, &hold(&mut other)).expect("attached without a link");
    drop(other);
    fs::remove_dir_all(&pinned).expect("unpinned");
    earlier
}

fn manner_names(attachments: &[DeviceAttachment]) -> Vec<(Direction, &'static str)> {
    let name = |manner| match manner {
        DeviceManner::Link { .. } => "link",
        DeviceManner::Program => "program",
        DeviceManner::Filter { .. } => "filter",
        DeviceManner::Xdp { .. } => "xdp",
    };
    attachments
        .iter()
        .map(|attachment| (attachment.direction, name(attachment.manner)))
        .collect()
}

/// What a clean-up has ended at devices.
fn at_devices(done: &Cleanup) -> Vec<(Direction, &'static str)> {
    let at = |found: &Found| match (&found.place, &found.manner) {
        (Place::Device { direction, .. }, Manner::Link { .. }) => Some((*direction, "link")),
        (Place::Device { direction, .. }, Manner::Filter { .. }) => Some((*direction, "filter")),
        (Place::Device { direction, .. }, _) => Some((*direction, "program")),
        _ => None,
    };
    done.detached.iter().filter_map(at).collect()
}

/// Everything that [`leave_behind`] leaves.
const LEFT: [(Direction, &str); 4] = [
    (Direction::Ingress, "link"),
    (Direction::Ingress, "program"),
    (Direction::Egress, "link"),
    (Direction::Egress, "filter"),
];

#[test]
fn leftovers_of_every_kind_are_found_and_evicted() {
    if !has_tcx() {
        return testing::skip(&testing::current(), NO_TCX);
    }
    isolated(|node| {
        pair("uplink", None);
        let earlier = leave_behind(node);
        let mut datapath = start(node, DeviceMode::First);
        let found = of(scan(&datapath), Ownership::Earlier);
        assert_eq!(manner_names(&found), LEFT, "{found:?}");
        assert!(
            found.iter().all(|attachment| attachment.hook.is_none()),
            "{found:?}"
        );
        datapath
            .attach_device("uplink", DeviceKind::Node)
            .expect("attached");
        let left = leftovers(&datapath).attachments;
        let at_device: Vec<&Found> = left
            .iter()
            .filter(|found| matches!(found.place, Place::Device { .. }))
            .collect();
        assert_eq!(at_device.len(), LEFT.len(), "{left:?}");
        for found in left {
            evict(&found, false).expect("evicted");
        }
        assert_eq!(of(scan(&datapath), Ownership::Earlier), []);
        assert_eq!(
            manner_names(&scan(&datapath)),
            [(Direction::Ingress, "link"), (Direction::Egress, "link")]
        );
        drop(earlier);
    });
}

#[test]
fn foreign_programs_of_the_same_name_stay_in_their_order() {
    if !has_tcx() {
        return testing::skip(&testing::current(), NO_TCX);
    }
    isolated(|node| {
        pair("uplink", None);
        let (first, second) = (
            foreign_packet_program("node_ingress"),
            foreign_packet_program("node_ingress"),
        );
        attach_tcx("uplink", Direction::Ingress, &first).expect("attached");
        for priority in [1, 77, 100] {
            attach_filter("uplink", Direction::Ingress, priority, &second).expect("attached as a filter");
        }
        let foreign = |found: &[DeviceAttachment]| -> Vec<(u32, DeviceManner)> {
            let of = found
                .iter()
                .filter(|attachment| attachment.ownership == Ownership::Foreign);
            of.map(|attachment| (attachment.program_id, attachment.manner))
                .collect()
        };
        let before = foreign(&scan(&start(node, DeviceMode::First)));
        assert_eq!(before.len(), 4);
        for (mode, place) in [
            (DeviceMode::First, 0),
            (DeviceMode::Last, 1),
            (DeviceMode::Filter { priority: 1 }, 1),
            // Ahead of the foreign one of the same priority.
            (DeviceMode::Filter { priority: 77 }, 2),
            (DeviceMode::Filter { priority: 99 }, 3),
        ] {
            let mut datapath = start(node, mode);
            for _ in 0..2 {
                datapath
                    .attach_device("uplink", DeviceKind::Node)
                    .expect("attached");
                let mut found = scan(&datapath);
                found.retain(|attachment| attachment.direction == Direction::Ingress);
                let at = found
                    .iter()
                    .position(|attachment| attachment.ownership == Ownership::Current);
                assert_eq!(at, Some(place), "{mode:?}: {found:?}");
                assert_eq!(foreign(&found), before, "{mode:?}");
            }
            assert_eq!(leftovers(&datapath).attachments, []);
            let ended = datapath.detach_device("uplink").expect("detached");
            assert_eq!(ended.len(), 2, "{ended:?}");
            assert_eq!(foreign(&scan(&datapath)), before);
            assert!(has_clsact("uplink"), "others have filters there");
        }
        let done = cleanup(&node.options.bpffs, &node.options.cgroup).expect("cleaned up");
        assert_eq!(at_devices(&done), []);
        assert_eq!(foreign(&scan(&start(node, DeviceMode::First))), before);
    });
}

#[test]
fn cleanup_leaves_nothing_at_any_device_and_does_so_once() {
    if !has_tcx() {
        return testing::skip(&testing::current(), NO_TCX);
    }
    isolated(|node| {
        pair("uplink", None);
        pair("pod", None);
        drop(leave_behind(node));
        for (mode, device) in MODES.into_iter().zip(["uplink", "pod"]) {
            let mut datapath = start(node, mode);
            datapath.attach_device(device, DeviceKind::Pod).expect("attached");
        }
        assert!(has_clsact("uplink") && has_clsact("pod"));
        let done = cleanup(&node.options.bpffs, &node.options.cgroup).expect("cleaned up");
        // Links that nobody holds any more end by themselves, sooner or later than they are found.
        let mut ended = at_devices(&done);
        ended.retain(|(_, manner)| *manner != "link");
        assert_eq!(
            ended,
            [
                (Direction::Ingress, "program"),
                (Direction::Egress, "filter"),
                (Direction::Ingress, "filter"),
                (Direction::Egress, "filter"),
            ],
            "{done:?}"
        );
        assert!(
            !has_clsact("uplink") && !has_clsact("pod"),
            "it was there for our filters"
        );
        assert!(!node.options.bpffs.join("plumbline").exists());
        let again = cleanup(&node.options.bpffs, &node.options.cgroup).expect("again");
        assert_eq!(again, Cleanup::default());
        assert_eq!(scan(&start(node, DeviceMode::First)), []);
    });
}

#[test]
fn another_way_to_attach_leaves_what_was_there_to_be_evicted() {
    if !has_tcx() {
        return testing::skip(&testing::current(), NO_TCX);
    }
    isolated(|node| {
        pair("uplink", None);
        let [by_link, as_filter] = MODES;
        for (before, after) in [(by_link, as_filter), (as_filter, by_link)] {
            let mut datapath = start(node, before);
            datapath
                .attach_device("uplink", DeviceKind::Node)
                .expect("attached");
            drop(datapath);
            let mut datapath = start(node, after);
            let attached = datapath
                .attach_device("uplink", DeviceKind::Node)
                .expect("attached");
            assert!(attached.iter().all(|attached| !attached.updated), "{attached:?}");
            let earlier = of(scan(&datapath), Ownership::Earlier);
            assert_eq!(earlier.len(), 2, "{earlier:?}");
            for found in leftovers(&datapath).attachments {
                evict(&found, false).expect("evicted");
            }
            assert_eq!(of(scan(&datapath), Ownership::Earlier), []);
            assert_eq!(of(scan(&datapath), Ownership::Current).len(), 2);
            datapath.detach_device("uplink").expect("detached");
        }
    });
}
