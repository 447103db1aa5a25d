//! What a process leaves that is killed between any two steps, and that the next start puts it in order.

use std::fs;

use lb_loader::{Hook, programs_attached};

use crate::{
    restart::{attached_alone, one_service, pins_in_order},
    support::{Node, dial, isolated, pin_array},
};

/// What a killed process may leave, from a running datapath; the next start adopts the maps and has the service.
fn check_recovers(node: &Node, leave: impl FnOnce(&Node)) {
    let datapath = node.start();
    let (cluster_ip, server) = one_service(node, &datapath);
    drop(datapath);
    leave(node);
    let datapath = node.start();
    assert!(datapath.adopted());
    assert_eq!(dial(cluster_ip).expect("a connection").0, server);
    attached_alone(node, &datapath);
    pins_in_order(node);
}

#[test]
fn killed_while_making_a_second_set() {
    isolated(|node| {
        check_recovers(node, |node| {
            fs::create_dir(node.pins("maps-next")).expect("a folder");
            pin_array(&node.pins("maps-next/SLOTS"), 1);
        });
    });
}

#[test]
fn killed_between_the_renames() {
    isolated(|node| {
        check_recovers(node, |node| {
            fs::rename(node.pins("maps"), node.pins("maps-next")).expect("renamed");
            fs::create_dir(node.pins("maps-old")).expect("a folder");
            pin_array(&node.pins("maps-old/SLOTS"), 1);
        });
    });
}

#[test]
fn killed_before_the_replaced_set_was_gone() {
    isolated(|node| {
        check_recovers(node, |node| {
            fs::create_dir(node.pins("maps-old")).expect("a folder");
            pin_array(&node.pins("maps-old/SLOTS"), 1);
        });
    });
}

#[test]
fn killed_while_pinning_a_link() {
    isolated(|node| {
        check_recovers(node, |node| {
            fs::rename(node.pins("links/connect4"), node.pins("links/connect4-next")).expect("renamed");
        });
    });
}

#[test]
fn killed_between_attaching_and_pinning_a_link() {
    isolated(|node| {
        let datapath = node.start();
        let (cluster_ip, server) = one_service(node, &datapath);
        // The link of the process that was killed is gone with it.
        fs::remove_file(node.pins("links/connect4")).expect("unpinned");
        drop(datapath);
        assert_eq!(
            programs_attached(&node.options.cgroup, Hook::Connect4, false).expect("the kernel says"),
            []
        );
        let datapath = node.start();
        assert_eq!(dial(cluster_ip).expect("a connection").0, server);
        attached_alone(node, &datapath);
        pins_in_order(node);
    });
}

#[test]
fn killed_while_making_the_first_set() {
    isolated(|node| {
        fs::create_dir_all(node.pins("maps-next")).expect("a folder");
        pin_array(&node.pins("maps-next/SLOTS"), 1);
        let datapath = node.start();
        assert!(!datapath.adopted());
        attached_alone(node, &datapath);
        pins_in_order(node);
    });
}
