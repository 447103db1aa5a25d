//! What earlier loads have left at devices, here and in other namespaces, and how it ends.

use std::fs;

use doctor::{Evicted, EvictionError, Found, Manner, Place, Scope, evict, inventory};
use lb_loader::{
    CraftedHook, Datapath, DeviceHook, DeviceKind, DeviceMode, Direction, HeldProgram, Layer, LoaderError,
    Ownership, XdpMode, attach_filter, attach_tcx, attach_xdp, attach_xdp_link, load_passing,
};

use crate::{
    NO_TCX,
    disciplines::{add_ingress, has_clsact, has_discipline},
    foreign_packet_program,
    network::{Network, index, pair},
    start,
    support::{Node, has_tcx, isolated},
};

/// A program of XDP that lets every packet pass, and uses these maps, by id.
fn xdp_program(maps: &[u32]) -> HeldProgram {
    load_passing("xdp", CraftedHook::Xdp, maps, None).expect("a program that only passes is accepted")
}

/// An earlier load that is attached nowhere, and a program of XDP that reads its META.
struct Earlier {
    packet: HeldProgram,
    xdp: HeldProgram,
}

impl Earlier {
    fn load(node: &Node) -> Self {
        let mut datapath = node.open();
        let packet = datapath
            .device_program(DeviceHook::NodeIngress)
            .expect("loaded")
            .id();
        let meta = datapath.meta_id().expect("META");
        let this = Self {
            packet: HeldProgram::by_id(packet).expect("it is loaded"),
            xdp: xdp_program(&[meta]),
        };
        assert!(this.xdp.is_ours().expect("its maps are read"));
        drop(datapath);
        fs::remove_dir_all(node.options.bpffs.join("plumbline")).expect("unpinned");
        this
    }
}

fn leftovers(datapath: &Datapath) -> Vec<Found> {
    let seen = crate::leftovers(datapath);
    assert_eq!(seen.blind, []);
    seen.attachments
}

/// Layer, direction, and how.
fn places(found: &[Found]) -> Vec<(Layer, Direction, &'static str)> {
    let place = |found: &Found| {
        let Place::Device { layer, direction, .. } = &found.place else {
            panic!("expected a device: {found:?}");
        };
        let manner = match found.manner {
            Manner::Legacy { .. } => "program",
            Manner::Link { .. } => "link",
            Manner::Filter { .. } => "filter",
            Manner::XdpNetlink { mode } => mode.name(),
        };
        (*layer, *direction, manner)
    };
    found.iter().map(place).collect()
}

#[track_caller]
fn evict_all(datapath: &Datapath, found: &[Found]) {
    for found in found {
        assert_eq!(found.ownership, Ownership::Earlier);
        assert_eq!(
            evict(found, false).expect("evicted"),
            Evicted::Detached,
            "{found:?}"
        );
    }
    for found in found {
        assert_eq!(
            evict(found, false).expect("gone already"),
            Evicted::Gone,
            "{found:?}"
        );
    }
    assert_eq!(leftovers(datapath), []);
}

#[test]
fn filters_and_programs_of_every_layer_are_found_in_order_and_evicted() {
    if !has_tcx() {
        return testing::skip(&testing::current(), NO_TCX);
    }
    isolated(|node| {
        pair("uplink", None);
        let earlier = Earlier::load(node);
        for (direction, priority) in [
            (Direction::Ingress, 3),
            (Direction::Ingress, 1),
            (Direction::Ingress, 3),
            (Direction::Egress, 65_535),
        ] {
            attach_filter("uplink", direction, priority, &earlier.packet).expect("attached as a filter");
        }
        attach_tcx("uplink", Direction::Ingress, &earlier.packet).expect("attached by TCX");
        attach_xdp("uplink", XdpMode::Generic, &earlier.xdp).expect("attached to XDP");
        let datapath = start(node, DeviceMode::First);
        let found = leftovers(&datapath);
        assert_eq!(
            places(&found),
            [
                (Layer::Xdp, Direction::Ingress, "generic"),
                (Layer::Tcx, Direction::Ingress, "program"),
                (Layer::Clsact, Direction::Ingress, "filter"),
                (Layer::Clsact, Direction::Ingress, "filter"),
                (Layer::Clsact, Direction::Ingress, "filter"),
                (Layer::Clsact, Direction::Egress, "filter"),
            ]
        );
        let orders: Vec<u32> = found.iter().map(|found| found.order).collect();
        assert_eq!(orders, [0, 0, 0, 1, 2, 0]);
        evict_all(&datapath, &found);
        assert!(has_clsact("uplink"), "another program may be about to use it");
    });
}

#[test]
fn a_filter_at_the_discipline_ingress_is_found_once_and_evicted_and_ours_are_not_put_there() {
    isolated(|node| {
        pair("uplink", None);
        add_ingress("uplink");
        let earlier = Earlier::load(node);
        attach_filter("uplink", Direction::Ingress, 3, &earlier.packet).expect("attached as a filter");
        let refused = |outcome: Result<(), LoaderError>| match outcome {
            Err(error @ LoaderError::NoEgress { .. }) => {
                assert!(
                    error.to_string().contains("`tc qdisc del dev uplink ingress`"),
                    "{error}"
                );
            }
            other => panic!("expected NoEgress, got {other:?}"),
        };
        refused(attach_filter("uplink", Direction::Egress, 3, &earlier.packet));
        let mut datapath = start(node, DeviceMode::Filter { priority: 77 });
        refused(datapath.attach_device("uplink", DeviceKind::Node).map(drop));
        let found = leftovers(&datapath);
        assert_eq!(
            places(&found),
            [(Layer::Clsact, Direction::Ingress, "filter")],
            "{found:?}"
        );
        evict_all(&datapath, &found);
        assert!(has_discipline("uplink", "ingress"), "it is not ours");
    });
}

#[test]
fn what_is_left_at_a_device_without_ethernet_ends_as_well() {
    if !has_tcx() {
        return testing::skip(&testing::current(), NO_TCX);
    }
    isolated(|node| {
        let earlier = Earlier::load(node);
        attach_tcx("lo", Direction::Ingress, &earlier.packet).expect("attached by TCX");
        let mut datapath = start(node, DeviceMode::First);
        assert_eq!(leftovers(&datapath).len(), 1);
        match datapath.attach_device("lo", DeviceKind::Node) {
            Err(LoaderError::NotEthernet { .. }) => {}
            other => panic!("expected NotEthernet, got {other:?}"),
        }
        let ended = datapath.detach_device("lo").expect("detached");
        assert_eq!(ended.len(), 1, "{ended:?}");
        assert_eq!(leftovers(&datapath), []);
    });
}

#[test]
fn xdp_in_every_manner_is_found_and_evicted_and_others_keep_theirs() {
    isolated(|node| {
        for device in ["native", "generic", "linked", "foreign"] {
            pair(device, None);
        }
        let earlier = Earlier::load(node);
        attach_xdp("native", XdpMode::Native, &earlier.xdp).expect("attached in the driver");
        attach_xdp("generic", XdpMode::Generic, &earlier.xdp).expect("attached");
        let link = attach_xdp_link(index("linked"), &earlier.xdp).expect("attached by a link");
        let foreign = xdp_program(&[]);
        attach_xdp("foreign", XdpMode::Native, &foreign).expect("attached");
        let datapath = start(node, DeviceMode::First);
        let found = leftovers(&datapath);
        let mut manners: Vec<&str> = places(&found).into_iter().map(|(_, _, manner)| manner).collect();
        manners.sort_unstable();
        assert_eq!(manners, ["generic", "link", "native"], "{found:?}");
        evict_all(&datapath, &found);
        // The slot is free for whoever wants it.
        let mine = xdp_program(&[]);
        for device in ["native", "generic", "linked"] {
            attach_xdp(device, XdpMode::Native, &mine).expect("nothing is in the way");
        }
        let scope = Scope {
            cgroup: node.options.cgroup.clone(),
            bpffs: Some(node.options.bpffs.clone()),
            current: Vec::new(),
        };
        let seen = inventory(&scope).expect("a look");
        let of_foreign: Vec<&Found> = seen
            .attachments
            .iter()
            .filter(|found| found.program.id == foreign.id())
            .collect();
        let [kept] = of_foreign[..] else {
            panic!("expected it once: {of_foreign:?}");
        };
        assert_eq!(kept.ownership, Ownership::Foreign);
        assert!(matches!(
            evict(kept, false),
            Err(EvictionError::NotEarlier { .. })
        ));
        assert_eq!(evict(kept, true).expect("by force"), Evicted::Detached);
        drop(link);
    });
}

#[test]
fn a_filter_that_was_replaced_meanwhile_stays() {
    isolated(|node| {
        pair("uplink", None);
        let earlier = Earlier::load(node);
        attach_xdp("uplink", XdpMode::Generic, &earlier.xdp).expect("attached");
        attach_filter("uplink", Direction::Ingress, 7, &earlier.packet).expect("attached");
        let datapath = start(node, DeviceMode::First);
        let found = leftovers(&datapath);
        evict_all(&datapath, &found);
        let foreign = foreign_packet_program("theirs");
        let theirs = xdp_program(&[]);
        attach_xdp("uplink", XdpMode::Generic, &theirs).expect("attached");
        attach_filter("uplink", Direction::Ingress, 7, &foreign).expect("attached");
        for found in &found {
            assert_eq!(
                evict(found, true).expect("theirs is not it"),
                Evicted::Gone,
                "{found:?}"
            );
        }
    });
}

#[test]
fn links_to_devices_of_other_namespaces_are_found_and_evicted() {
    if !has_tcx() {
        return testing::skip(&testing::current(), NO_TCX);
    }
    isolated(|node| {
        let network = Network::new();
        let mut earlier = node.open();
        let bpffs = node.options.bpffs.clone();
        // Attached from within the pod's namespace, and held by whoever holds this.
        let earlier = network.pod.run(move || {
            earlier
                .attach_device("pod-peer", DeviceKind::Pod)
                .expect("attached in the pod's namespace");
            fs::remove_dir_all(bpffs.join("plumbline")).expect("unpinned");
            earlier
        });
        let datapath = start(node, DeviceMode::First);
        let found = leftovers(&datapath);
        assert_eq!(found.len(), 2, "{found:?}");
        for found in &found {
            assert!(
                matches!(
                    found.place,
                    Place::Device {
                        name: None,
                        layer: Layer::Tcx,
                        ..
                    }
                ),
                "{found:?}"
            );
        }
        evict_all(&datapath, &found);
        drop(earlier);
    });
}
