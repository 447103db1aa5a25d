//! Sets of maps of other versions of the agent, older and newer, with live links: what takes their place, when, and
//! what is lost.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::Instant,
};

use aya::maps::{Array, MapData};
use lb_abi::Meta;
use lb_loader::{Hook, MapName, programs_attached, read_pinned};

use crate::{
    restart::{attached_alone, one_service, pins_in_order},
    support::{Node, Protocol, dial, isolated, overwrite_meta, pin_array, switch},
};

/// Makes the pinned set, whose programs are attached, look like one of another version: those programs go on, as only
/// the pins are others'.
fn becomes(node: &Node, meta: &Meta, spoil: impl FnOnce(&Node)) {
    // What is attached reads the META that is pinned, so that it gets one of its own in its place.
    let path = node.pins("maps/META");
    fs::remove_file(&path).expect("unpinned");
    let array = Array::<MapData, [u8; size_of::<Meta>()]>::create(1, 0).expect("an array");
    array.pin(&path).expect("pinned");
    overwrite_meta(node, meta);
    spoil(node);
}

/// Starts on top of it, under clients, and sees that none is refused, and that the other set is gone.
#[track_caller]
fn takes_over(node: &Node, lost: &[MapName], meta: &Meta, spoil: impl FnOnce(&Node)) {
    let datapath = node.start();
    let (vip, server) = one_service(node, &datapath);
    drop(datapath);
    becomes(node, meta, spoil);
    match read_pinned(&node.options.bpffs) {
        Err(lb_loader::LoaderError::NotPinned { .. }) => {}
        other => panic!("expected NotPinned, got {other:?}"),
    }
    let (done, served) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert_eq!(dial(vip).expect("a connection").0, server);
                served.fetch_add(1, Ordering::Relaxed);
            }
        });
        let progress = || {
            let before = served.load(Ordering::Relaxed);
            while served.load(Ordering::Relaxed) == before && !client.is_finished() {
                thread::yield_now();
            }
        };
        progress();
        let mut datapath = node.open();
        assert!(!datapath.adopted());
        let replaced = datapath.replaced().expect("there was one");
        assert_eq!(replaced.lost, lost, "{replaced:?}");
        progress();
        switch(&datapath, Protocol::Tcp, 80, 1, &[server]);
        crate::support::frontend(&datapath, Protocol::Tcp, vip, 80);
        progress();
        let attached = datapath.attach().expect("attached");
        assert!(attached.iter().all(|attached| attached.updated), "{attached:?}");
        progress();
        done.store(true, Ordering::Relaxed);
        client.join().expect("the client was served all along");
        attached_alone(node, &datapath);
        pins_in_order(node);
    });
    let datapath = node.open();
    assert!(datapath.adopted() && datapath.replaced().is_none());
}

/// What another version's programs have noted.
const NOTED: [MapName; 4] = [
    MapName::SocketRevnat,
    MapName::SocketBackend,
    MapName::Fragments,
    MapName::Conntrack,
];

#[test]
fn an_older_versions_set_gives_way_without_a_refusal_and_what_is_lost_is_said() {
    isolated(|node| {
        let older = Meta {
            abi: Meta::CURRENT.abi - 1,
            ..Meta::CURRENT
        };
        takes_over(node, &NOTED, &older, |_| {});
    });
}

#[test]
fn a_newer_versions_set_gives_way_without_a_refusal_and_what_is_lost_is_said() {
    isolated(|node| {
        let newer = Meta {
            abi: Meta::CURRENT.abi + 1,
            ..Meta::CURRENT
        };
        takes_over(node, &NOTED, &newer, |_| {});
    });
}

/// Pins a META of a version to come, which is longer.
fn longer_meta(path: &Path, abi: u32) {
    let mut value = [0xee_u8; 64];
    value[..8].copy_from_slice(&lb_abi::MAGIC);
    value[8..12].copy_from_slice(&abi.to_ne_bytes());
    value[12..16].fill(0);
    let mut array = Array::<MapData, [u8; 64]>::create(1, 0).expect("an array");
    array.set(0, value, 0).expect("written");
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
        _ => array.pin(path).expect("pinned"),
    }
}

#[test]
fn a_newer_set_with_a_longer_meta_and_maps_that_nobody_knows_gives_way() {
    isolated(|node| {
        takes_over(node, &NOTED, &Meta::CURRENT, |node| {
            longer_meta(&node.pins("maps/META"), 3);
            let unknown = Array::<MapData, u64>::create(7, 0).expect("an array");
            unknown.pin(node.pins("maps/TOPOLOGY")).expect("pinned");
        });
    });
}

#[test]
fn what_another_version_has_pinned_in_a_folder_of_its_own_goes_when_this_one_is_attached() {
    isolated(|node| {
        let datapath = node.start();
        let (vip, server) = one_service(node, &datapath);
        drop(datapath);
        let root = node.options.bpffs.join("plumbline");
        fs::rename(root.join("v1"), root.join("v2")).expect("renamed");
        assert_eq!(dial(vip).expect("a connection").0, server);
        let mut datapath = node.open();
        assert!(!datapath.adopted() && root.join("v2").exists());
        node.service(&datapath, Protocol::Tcp, 80, &[server]);
        assert_eq!(dial(vip).expect("a connection").0, server);
        datapath.attach().expect("attached");
        assert!(!root.join("v2").exists());
        // A link whose last holder has gone stays attached until a worker of the kernel comes to it.
        let deadline = Instant::now() + testing::patience::LIMIT;
        let count = |hook| {
            let attached = programs_attached(&node.options.cgroup, hook, false);
            attached.expect("the kernel says").len()
        };
        while Hook::ALL.into_iter().any(|hook| count(hook) > 1) && Instant::now() < deadline {
            thread::yield_now();
        }
        attached_alone(node, &datapath);
        pins_in_order(node);
        assert_eq!(dial(vip).expect("a connection").0, server);
    });
}

#[test]
fn a_set_that_could_not_take_the_place_of_another_does_so_when_it_is_attached_again() {
    isolated(|node| {
        let datapath = node.start();
        let (vip, server) = one_service(node, &datapath);
        drop(datapath);
        pin_array(&node.pins("maps/SLOTS"), 1);
        let mut datapath = node.open();
        assert!(!datapath.adopted());
        node.service(&datapath, Protocol::Tcp, vip.port(), &[server]);
        // The set that is replaced can't be put aside.
        let in_the_way = node.pins("maps-old");
        fs::create_dir(&in_the_way).expect("a folder");
        pin_array(&in_the_way.join("SLOTS"), 1);
        datapath.attach().expect_err("there is something in the way");
        attached_alone(node, &datapath);
        assert!(node.pins("maps-next").exists());
        fs::remove_dir_all(&in_the_way).expect("removed");
        datapath.attach().expect("attached");
        pins_in_order(node);
        assert_eq!(dial(vip).expect("a connection").0, server);
        drop(datapath);
        assert!(node.open().adopted());
    });
}
