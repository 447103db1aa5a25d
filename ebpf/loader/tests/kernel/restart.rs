//! Adoption of maps and links, and maps of other layouts.

use std::{
    collections::BTreeSet,
    fs,
    net::{SocketAddrV4, TcpStream},
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
};

use lb_abi::{Counter, Meta};
use lb_loader::{Datapath, Hook, LoaderError, MapName, programs_attached, read_pinned};

use crate::support::{
    Node, Protocol, TcpServer, UdpServer, dial, isolated, overwrite_meta, pin_array, receive, switch,
    udp_client,
};

/// One service with one backend, attached; returns the ClusterIP and the backend.
pub(crate) fn one_service(node: &Node, datapath: &Datapath) -> (SocketAddrV4, SocketAddrV4) {
    let server = TcpServer::start(1);
    (
        node.service(datapath, Protocol::Tcp, 80, &[server.address]),
        server.address,
    )
}

/// At each hook exactly one program, and it is of this load.
#[track_caller]
pub(crate) fn attached_alone(node: &Node, datapath: &Datapath) {
    for (hook, program) in datapath.programs() {
        let attached = programs_attached(&node.options.cgroup, hook, false).expect("the kernel says");
        assert_eq!(attached, [program.id()], "at {hook}");
    }
}

/// Names in a folder of pins.
fn pinned(node: &Node, folder: &str) -> BTreeSet<String> {
    let names = fs::read_dir(node.pins(folder)).expect("a folder of pins");
    names
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("ASCII"))
        .collect()
}

/// The ordinary set of pins, and nothing else.
#[track_caller]
pub(crate) fn pins_in_order(node: &Node) {
    assert_eq!(
        pinned(node, ""),
        BTreeSet::from(["devices", "maps", "links"].map(str::to_owned))
    );
    assert_eq!(
        pinned(node, "maps"),
        MapName::PINNED.iter().map(|map| map.name().to_owned()).collect()
    );
    assert_eq!(
        pinned(node, "links"),
        Hook::ALL.iter().map(|hook| hook.name().to_owned()).collect()
    );
}

#[test]
fn the_first_start_makes_maps_and_pins_everything() {
    isolated(|node| {
        let datapath = node.start();
        assert!(!datapath.adopted());
        attached_alone(node, &datapath);
        pins_in_order(node);
    });
}

#[test]
fn what_is_attached_outlives_the_process_that_attached_it() {
    isolated(|node| {
        let datapath = node.start();
        let (cluster_ip, server) = one_service(node, &datapath);
        drop(datapath);
        assert_eq!(dial(cluster_ip).expect("a connection").0, server);
    });
}

#[test]
fn ten_restarts_keep_maps_and_links_and_fail_no_client() {
    isolated(|node| {
        let mut datapath = node.open();
        let first = datapath.attach().expect("attached");
        assert!(first.iter().all(|attached| !attached.updated), "{first:?}");
        let (cluster_ip, server) = one_service(node, &datapath);
        let (done, connections) = (AtomicBool::new(false), AtomicU32::new(0));
        let datapath = thread::scope(|scope| {
            let client = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(dial(cluster_ip).expect("a connection"), (server, cluster_ip));
                    connections.fetch_add(1, Ordering::Relaxed);
                }
            });
            let contents = datapath.maps().slots.entries().expect("the slots");
            for restart in 1..=10 {
                let before = connections.load(Ordering::Relaxed);
                // The links are held by their pins alone.
                drop(datapath);
                datapath = node.open();
                assert!(datapath.adopted(), "restart {restart}");
                assert_eq!(datapath.maps().slots.entries().expect("the slots"), contents);
                let attached = datapath.attach().expect("attached");
                for (now, first) in attached.iter().zip(&first) {
                    assert!(now.updated, "restart {restart}: {now:?}");
                    assert_eq!(
                        now.link_id, first.link_id,
                        "restart {restart}: the link of {} stayed",
                        now.hook
                    );
                    assert_ne!(
                        now.program_id, first.program_id,
                        "restart {restart}: {} is a new load",
                        now.hook
                    );
                }
                attached_alone(node, &datapath);
                pins_in_order(node);
                while connections.load(Ordering::Relaxed) == before && !client.is_finished() {
                    thread::yield_now();
                }
            }
            done.store(true, Ordering::Relaxed);
            client.join().expect("the client was served all along");
            datapath
        });
        assert_eq!(
            datapath
                .maps()
                .counters()
                .expect("the counters")
                .get(Counter::SocketHole),
            0
        );
    });
}

#[test]
fn attaching_twice_changes_nothing() {
    isolated(|node| {
        let mut datapath = node.open();
        let first = datapath.attach().expect("attached");
        let again = datapath.attach().expect("attached again");
        let ids = |attached: &[lb_loader::Attached]| -> Vec<(u32, u32)> {
            attached
                .iter()
                .map(|attached| (attached.program_id, attached.link_id))
                .collect()
        };
        assert_eq!(ids(&again), ids(&first));
        attached_alone(node, &datapath);
    });
}

/// Breaks the pinned set of a running datapath, restarts, and sees that the old set serves until the new one is
/// filled and attached.
fn check_not_adopted(node: &Node, reverse_is_kept: bool, spoil: impl FnOnce(&Node)) {
    let datapath = node.start();
    let (cluster_ip, old_server) = one_service(node, &datapath);
    let connected = udp_client();
    let udp = node.service(&datapath, Protocol::Udp, 53, &[old_server]);
    connected.connect(udp).expect("connected");
    drop(datapath);
    spoil(node);

    let mut datapath = node.open();
    assert!(!datapath.adopted());
    assert_eq!(
        datapath.maps().frontends.entries().expect("the frontends"),
        [],
        "the new set is empty"
    );
    let new_server = TcpServer::start(2).address;
    node.service(&datapath, Protocol::Tcp, 80, &[new_server]);
    datapath.attach().expect("attached");
    assert_eq!(dial(cluster_ip).expect("a connection").0, new_server);
    let shown = if reverse_is_kept { udp } else { old_server };
    assert_eq!(
        connected.peer_addr().expect("a peer"),
        shown.into(),
        "getpeername of a socket from before"
    );
    attached_alone(node, &datapath);
    pins_in_order(node);
    drop(datapath);

    let datapath = node.open();
    assert!(
        datapath.adopted(),
        "the set that took the other's place is adopted in turn"
    );
    assert_eq!(
        datapath.maps().frontends.entries().expect("the frontends").len(),
        1
    );
}

#[test]
fn a_new_set_takes_over_and_fails_no_client() {
    isolated(|node| {
        let datapath = node.start();
        let (cluster_ip, server) = one_service(node, &datapath);
        let udp_server = UdpServer::start(1).address;
        let udp = node.service(&datapath, Protocol::Udp, 53, &[udp_server]);
        drop(datapath);
        let (done, served) = (AtomicBool::new(false), [AtomicU32::new(0), AtomicU32::new(0)]);
        thread::scope(|scope| {
            let [tcp_served, udp_served] = &served;
            let clients = [
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        assert_eq!(dial(cluster_ip).expect("a connection"), (server, cluster_ip));
                        tcp_served.fetch_add(1, Ordering::Relaxed);
                    }
                }),
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let client = udp_client();
                        client.send_to(b"who", udp).expect("sent");
                        assert_eq!(receive(&client).expect("an answer"), (udp_server, udp));
                        udp_served.fetch_add(1, Ordering::Relaxed);
                    }
                }),
            ];
            for _ in 0..10 {
                let before = served.each_ref().map(|served| served.load(Ordering::Relaxed));
                pin_array(&node.pins("maps/SLOTS"), 1);
                let mut datapath = node.open();
                assert!(!datapath.adopted());
                node.service(&datapath, Protocol::Tcp, cluster_ip.port(), &[server]);
                node.service(&datapath, Protocol::Udp, udp.port(), &[udp_server]);
                datapath.attach().expect("attached");
                while clients.iter().all(|client| !client.is_finished())
                    && served
                        .iter()
                        .zip(before)
                        .any(|(now, before)| now.load(Ordering::Relaxed) == before)
                {
                    thread::yield_now();
                }
            }
            done.store(true, Ordering::Relaxed);
            for client in clients {
                client.join().expect("the client was served all along");
            }
        });
    });
}

#[test]
fn a_map_of_another_type_under_our_pin_is_not_adopted() {
    isolated(|node| check_not_adopted(node, true, |node| pin_array(&node.pins("maps/FRONTENDS"), 65_536)));
}

#[test]
fn a_map_of_another_capacity_under_our_pin_is_not_adopted() {
    isolated(|node| check_not_adopted(node, true, |node| pin_array(&node.pins("maps/COUNTERS"), 3)));
}

#[test]
fn a_reverse_map_of_another_layout_is_not_carried_over() {
    isolated(|node| {
        check_not_adopted(node, false, |node| {
            pin_array(&node.pins("maps/SOCKET_REVNAT"), 65_536);
        });
    });
}

#[test]
fn maps_of_another_abi_version_are_not_adopted() {
    isolated(|node| {
        check_not_adopted(node, false, |node| {
            overwrite_meta(
                node,
                &Meta {
                    abi: Meta::CURRENT.abi + 1,
                    ..Meta::CURRENT
                },
            );
        });
    });
}

#[test]
fn an_incomplete_set_is_not_adopted() {
    isolated(|node| {
        check_not_adopted(node, true, |node| {
            fs::remove_file(node.pins("maps/SLOTS")).expect("unpinned");
        });
    });
}

#[test]
fn the_old_set_serves_until_the_new_one_is_attached() {
    isolated(|node| {
        let datapath = node.start();
        let (cluster_ip, server) = one_service(node, &datapath);
        drop(datapath);
        pin_array(&node.pins("maps/FRONTENDS"), 1);
        let datapath = node.open();
        assert!(!datapath.adopted());
        // The new set has no frontends yet.
        assert_eq!(dial(cluster_ip).expect("a connection").0, server);
        drop(datapath);
        // Killed before it attached: the next start is as this one was.
        let datapath = node.start();
        assert!(!datapath.adopted());
        attached_alone(node, &datapath);
        pins_in_order(node);
    });
}

#[test]
fn removed_pins_do_not_detach_while_the_agent_runs() {
    isolated(|node| {
        let datapath = node.start();
        let (cluster_ip, server) = one_service(node, &datapath);
        fs::remove_dir_all(node.pins("")).expect("unpinned");
        assert_eq!(dial(cluster_ip).expect("a connection").0, server);
        attached_alone(node, &datapath);
    });
}

#[test]
fn a_second_agent_is_told_that_there_is_one() {
    isolated(|node| {
        let first = node.start();
        match Datapath::open(&node.options) {
            Err(LoaderError::Busy { path }) => assert_eq!(path, node.options.bpffs.join("plumbline")),
            other => panic!("expected Busy, got {other:?}"),
        }
        drop(first);
        assert!(node.open().adopted());
    });
}

#[test]
fn the_pinned_maps_are_read_beside_a_running_agent() {
    isolated(|node| {
        match read_pinned(&node.options.bpffs) {
            Err(LoaderError::NotPinned { .. }) => {}
            other => panic!("expected NotPinned, got {other:?}"),
        }
        let datapath = node.start();
        let (cluster_ip, server) = one_service(node, &datapath);
        switch(&datapath, Protocol::Tcp, 80, 2, &[server]);
        // What is remembered of a socket goes with it.
        let _connected = TcpStream::connect(cluster_ip).expect("a connection");
        let (maps, read) = (
            datapath.maps(),
            read_pinned(&node.options.bpffs).expect("the pinned maps"),
        );
        assert_eq!(
            read.frontends.entries().expect("frontends"),
            maps.frontends.entries().expect("frontends")
        );
        assert_eq!(
            read.services.entries().expect("services"),
            maps.services.entries().expect("services")
        );
        assert_eq!(
            read.slots.entries().expect("slots"),
            maps.slots.entries().expect("slots")
        );
        assert_eq!(
            read.backends.entries().expect("backends"),
            maps.backends.entries().expect("backends")
        );
        assert_eq!(
            read.socket_revnat.entries().expect("reverse"),
            maps.socket_revnat.entries().expect("reverse")
        );
        assert_eq!(
            read.counters().expect("counters").get(Counter::ConnectTranslated),
            1
        );
        assert_eq!(
            read.socket_backend.entries().expect("sockets"),
            maps.socket_backend.entries().expect("sockets")
        );
        assert_eq!(
            read.config().expect("config"),
            Some(maps.config.get().expect("config"))
        );
        assert_eq!(read.services.entries().expect("services").len(), 1);
        assert_eq!(read.socket_backend.entries().expect("sockets").len(), 1);
        assert_eq!(read.socket_revnat.entries().expect("reverse").len(), 1);
    });
}

#[test]
fn pins_with_the_names_of_an_earlier_version_are_adopted() {
    isolated(|node| {
        let datapath = node.start();
        let (cluster_ip, server) = one_service(node, &datapath);
        drop(datapath);
        for (former, name) in lb_abi::FORMER_NAMES {
            let maps = node.pins("maps");
            fs::rename(maps.join(name), maps.join(former)).expect("renamed");
        }
        let datapath = node.start();
        assert!(datapath.adopted());
        pins_in_order(node);
        assert_eq!(dial(cluster_ip).expect("a connection").0, server);
    });
}
