//! Attached, adopted by a restart, gone with the device.

use std::fs;

use lb_loader::{AttachedDevice, Datapath, DeviceHook, DeviceKind, DeviceManner, LoaderError, Ownership};

use super::{
    MODES,
    network::{here, index, pair},
    of, scan, start,
};
use crate::support::{has_tcx, isolated};

/// Both programs of a kind of device are there, each once, and nothing else of ours.
#[track_caller]
fn attached_alone(datapath: &Datapath, device: u32, kind: DeviceKind) {
    let mut expected: Vec<(u32, Option<DeviceHook>)> = datapath
        .device_programs()
        .filter(|(hook, _)| kind.hooks().contains(hook))
        .map(|(hook, program)| (program.id(), Some(hook)))
        .collect();
    let found = scan(datapath);
    let mut here: Vec<(u32, Option<DeviceHook>)> = found
        .iter()
        .filter(|attachment| attachment.device.index == device && attachment.ownership == Ownership::Current)
        .map(|attachment| (attachment.program_id, attachment.hook))
        .collect();
    expected.sort_unstable();
    here.sort_unstable();
    assert_eq!(here, expected, "{found:?}");
    assert_eq!(of(found, Ownership::Earlier), []);
}

fn manners(attached: &[AttachedDevice]) -> Vec<DeviceManner> {
    attached.iter().map(|attached| attached.manner).collect()
}

#[test]
fn a_device_gets_both_programs_of_its_kind() {
    isolated(|node| {
        pair("uplink", None);
        for mode in MODES {
            for kind in [DeviceKind::Node, DeviceKind::Pod] {
                let mut datapath = start(node, mode);
                let attached = datapath.attach_device("uplink", kind).expect("attached");
                let hooks: Vec<_> = attached.iter().map(|attached| attached.hook).collect();
                assert_eq!(hooks, kind.hooks());
                let as_asked = |manner: &DeviceManner| match mode {
                    lb_loader::DeviceMode::Filter { priority: wanted } => {
                        matches!(manner, DeviceManner::Filter { priority, .. } if *priority == wanted)
                    }
                    _ if has_tcx() => matches!(manner, DeviceManner::Link { .. }),
                    _ => matches!(manner, DeviceManner::Filter { .. }),
                };
                assert!(manners(&attached).iter().all(as_asked), "{mode:?}: {attached:?}");
                attached_alone(&datapath, index("uplink"), kind);
                let ended = datapath.detach_device("uplink").expect("detached");
                assert_eq!(ended.len(), 2, "{ended:?}");
                assert_eq!(scan(&datapath), []);
                assert_eq!(datapath.detach_device("uplink").expect("again"), []);
            }
        }
    });
}

#[test]
fn a_restart_switches_links_and_filters_in_their_place() {
    isolated(|node| {
        pair("uplink", None);
        for mode in MODES {
            let mut datapath = start(node, mode);
            let first = datapath
                .attach_device(index("uplink"), DeviceKind::Node)
                .expect("attached");
            let again = datapath
                .attach_device("uplink", DeviceKind::Node)
                .expect("attached again");
            assert_eq!(
                manners(&again),
                manners(&first),
                "attaching twice changes nothing"
            );
            drop(datapath);

            let mut datapath = start(node, mode);
            let of_before = of(scan(&datapath), Ownership::Earlier);
            assert_eq!(
                of_before.len(),
                2,
                "what is attached outlives its process: {of_before:?}"
            );
            let next = datapath
                .attach_device("uplink", DeviceKind::Node)
                .expect("attached by the next");
            assert_eq!(manners(&next), manners(&first), "the links and filters stayed");
            for (next, first) in next.iter().zip(&first) {
                assert!(next.updated, "{next:?}");
                assert_ne!(next.program_id, first.program_id, "a new load");
            }
            attached_alone(&datapath, index("uplink"), DeviceKind::Node);
            datapath.detach_device("uplink").expect("detached");
        }
    });
}

#[test]
fn a_device_that_becomes_one_of_the_other_kind_gets_the_other_programs() {
    isolated(|node| {
        pair("uplink", None);
        for mode in MODES {
            let mut datapath = start(node, mode);
            let before = datapath
                .attach_device("uplink", DeviceKind::Pod)
                .expect("attached");
            let after = datapath
                .attach_device("uplink", DeviceKind::Node)
                .expect("attached");
            assert_eq!(manners(&after), manners(&before));
            attached_alone(&datapath, index("uplink"), DeviceKind::Node);
            datapath.detach_device("uplink").expect("detached");
        }
    });
}

#[test]
fn a_device_that_comes_back_is_attached_anew() {
    isolated(|node| {
        const INDEX: u32 = 4242;
        for mode in MODES {
            let mut datapath = start(node, mode);
            for _ in 0..3 {
                pair("pod", Some(INDEX));
                let attached = datapath.attach_device("pod", DeviceKind::Pod).expect("attached");
                assert!(
                    attached.iter().all(|attached| !attached.updated),
                    "it is another device: {attached:?}"
                );
                attached_alone(&datapath, INDEX, DeviceKind::Pod);
                here().remove("pod").expect("removed");
                assert_eq!(scan(&datapath), [], "gone with the device");
            }
            drop(datapath);
            let datapath = start(node, mode);
            let pins = fs::read_dir(node.pins("devices")).expect("the folder of pins");
            assert_eq!(pins.count(), 0, "the pins of links without devices are gone");
            drop(datapath);
        }
    });
}

#[test]
fn a_device_of_the_same_index_in_another_namespace_is_another_device() {
    isolated(|node| {
        const INDEX: u32 = 4242;
        pair("pod", Some(INDEX));
        let mut datapath = start(node, MODES[0]);
        datapath.attach_device("pod", DeviceKind::Pod).expect("attached");
        drop(datapath);
        // The device stays, in the namespace of this process's first thread; this one goes to another.
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("another namespace");
        pair("pod", Some(INDEX));
        let mut datapath = start(node, MODES[0]);
        let attached = datapath.attach_device("pod", DeviceKind::Pod).expect("attached");
        assert!(attached.iter().all(|attached| !attached.updated), "{attached:?}");
        attached_alone(&datapath, INDEX, DeviceKind::Pod);
    });
}

#[test]
fn the_loopback_device_has_a_program_where_packets_leave_and_takes_in_all() {
    isolated(|node| {
        const SETTINGS: [(&str, &str); 2] = [("accept_local", "1"), ("rp_filter", "2")];
        let path = |setting| format!("/proc/sys/net/ipv4/conf/lo/{setting}");
        for mode in MODES {
            for (setting, _) in SETTINGS {
                fs::write(path(setting), "0").expect("written");
            }
            let mut datapath = start(node, mode);
            for updated in [false, true] {
                let attached = datapath
                    .attach_device("lo", DeviceKind::Loopback)
                    .expect("attached");
                let hooks: Vec<_> = attached
                    .iter()
                    .map(|attached| (attached.hook, attached.updated))
                    .collect();
                assert_eq!(hooks, [(DeviceHook::NodeEgress, updated)]);
                attached_alone(&datapath, 1, DeviceKind::Loopback);
                for (setting, expected) in SETTINGS {
                    let value = fs::read_to_string(path(setting)).expect("read");
                    assert_eq!(value.trim(), expected, "{setting}");
                }
            }
            assert_eq!(datapath.detach_device("lo").expect("detached").len(), 1);
        }
    });
}

#[test]
fn what_is_no_device_to_serve_is_named() {
    isolated(|node| {
        let mut datapath = start(node, MODES[0]);
        match datapath.attach_device("lo", DeviceKind::Node) {
            Err(error @ LoaderError::NotEthernet { hardware: 772, .. }) => {
                let text = error.to_string();
                assert!(
                    text.contains("lo (1)") && text.contains("expected one of Ethernet"),
                    "{text}"
                );
            }
            other => panic!("expected NotEthernet, got {other:?}"),
        }
        match datapath.attach_device("uplink", DeviceKind::Node) {
            Err(error @ LoaderError::NoDevice { .. }) => {
                let text = error.to_string();
                assert!(
                    text.contains("no network device uplink") && text.contains("has lo"),
                    "{text}"
                );
            }
            other => panic!("expected NoDevice, got {other:?}"),
        }
        match datapath.attach_device(4242, DeviceKind::Node) {
            Err(LoaderError::NoDevice { device, .. }) => assert_eq!(device, "with index 4242"),
            other => panic!("expected NoDevice, got {other:?}"),
        }
        assert_eq!(datapath.detach_device("uplink").expect("nothing to detach"), []);
    });
}
