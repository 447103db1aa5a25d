//! How many sockets are remembered: CHOSEN, SOCKET_REVNAT and SOCKET_BACKEND follow CONNTRACK, and keep their size when they are adopted.

use std::{collections::BTreeSet, fs, thread, time::Instant};

use lb_abi::{
    Address, Backend, Chosen, ChosenKey, FrontendKey, Port, SocketRevnat, SocketRevnatKey, TCP, capacity,
};
use lb_loader::{Datapath, Hook, MapName, Options, RawMap, programs_attached};

use crate::support::{Node, Protocol, UdpServer, isolated, pin_array, receive, udp_client};

/// Entries of CONNTRACK, and with them those of the others.
const LARGE: (u32, u32) = (1 << 18, 1 << 17);
const SMALL: (u32, u32) = (capacity::CONNTRACK_LEAST, capacity::SOCKETS_LEAST);

fn open(node: &Node, (flows, _): (u32, u32)) -> Datapath {
    let options = Options {
        flows: Some(flows),
        ..node.options.clone()
    };
    Datapath::open(&options).expect("the datapath opens")
}

/// Most entries of a pinned map.
fn size(node: &Node, map: MapName) -> u32 {
    let path = node.pins("maps").join(map.name());
    let map = RawMap::pinned(&path).expect("it is pinned").expect("a map");
    map.layout().max_entries
}

/// Of CONNTRACK, and of CHOSEN, SOCKET_REVNAT and SOCKET_BACKEND.
fn sizes(node: &Node) -> (u32, [u32; 3]) {
    (
        size(node, MapName::Conntrack),
        [MapName::Chosen, MapName::SocketRevnat, MapName::SocketBackend].map(|map| size(node, map)),
    )
}

/// What the programs note of this many sockets that do not exist: one backend, one frontend.
fn note_sockets(datapath: &Datapath, count: u32) {
    let backend = Backend {
        address: Address::v4([192, 0, 2, 1]),
        port: Port::new(80),
        protocol: TCP,
        flags: 0,
    };
    let frontend = FrontendKey {
        address: Address::v4([10, 96, 0, 9]),
        port: Port::new(80),
        protocol: TCP,
        pad: 0,
    };
    let remembered = SocketRevnat {
        frontend,
        previous: Backend {
            address: Address::UNSPECIFIED_V6,
            port: Port::new(0),
            protocol: 0,
            flags: 0,
        },
    };
    let chosen = Chosen {
        service: 9,
        backend: 9,
    };
    // The kernel gives cookies from 1 upwards, so no socket has these.
    let cookies: Vec<u64> = (0..u64::from(count)).map(|number| number + (1 << 40)).collect();
    let keys = |cookie: &u64| SocketRevnatKey {
        cookie: *cookie,
        backend,
        pad: 0,
    };
    let reverse: Vec<SocketRevnatKey> = cookies.iter().map(keys).collect();
    let chosen_by = |cookie: &u64| ChosenKey {
        cookie: *cookie,
        frontend,
        pad: 0,
    };
    let choices: Vec<ChosenKey> = cookies.iter().map(chosen_by).collect();
    let (maps, all) = (datapath.maps(), cookies.len());
    maps.socket_revnat
        .put_all(&reverse, &vec![remembered; all])
        .expect("noted");
    maps.socket_backend
        .put_all(&cookies, &vec![backend; all])
        .expect("noted");
    maps.chosen.put_all(&choices, &vec![chosen; all]).expect("noted");
}

/// Sockets of which each map has an entry.
fn noted(datapath: &Datapath) -> [BTreeSet<u64>; 3] {
    let maps = datapath.maps();
    let mut noted: [Vec<u64>; 3] = Default::default();
    let [chosen, reverse, sockets] = &mut noted;
    maps.chosen
        .each(|key, _| chosen.push(key.cookie))
        .expect("CHOSEN is read");
    maps.socket_revnat
        .each(|key, _| reverse.push(key.cookie))
        .expect("SOCKET_REVNAT is read");
    maps.socket_backend
        .each(|cookie, _| sockets.push(*cookie))
        .expect("SOCKET_BACKEND is read");
    noted.map(|cookies| {
        let shown = cookies.len();
        let once: BTreeSet<u64> = cookies.into_iter().collect();
        assert_eq!(once.len(), shown, "each is shown once");
        once
    })
}

#[test]
fn by_itself_there_is_room_for_the_socket_of_each_connection_that_flows_has_room_for() {
    isolated(|node| {
        drop(node.open());
        let (flows, others) = sizes(node);
        assert_eq!(others, [(flows / 2).max(capacity::SOCKETS_LEAST); 3], "{flows}");
    });
}

#[test]
fn a_datagram_socket_is_remembered_beside_a_hundred_thousand_other_sockets() {
    const OTHERS: u32 = 100_000;
    isolated(|node| {
        let mut datapath = open(node, LARGE);
        assert_eq!(sizes(node), (LARGE.0, [LARGE.1; 3]));
        datapath.attach().expect("attached");
        let server = UdpServer::start(1).address;
        let vip = node.service(&datapath, Protocol::Udp, 53, &[server]);
        let client = udp_client();
        client.send_to(b"who", vip).expect("sent");
        let alone = noted(&datapath);
        assert!(alone.iter().all(|cookies| cookies.len() == 1), "{alone:?}");
        note_sockets(&datapath, OTHERS);
        for (cookies, alone) in noted(&datapath).iter().zip(&alone) {
            assert!(cookies.is_superset(alone));
            assert_eq!(cookies.len(), OTHERS as usize + 1);
        }
        assert_eq!(receive(&client).expect("an answer"), (server, vip));
        drop(client);
        assert!(
            noted(&datapath)
                .iter()
                .all(|cookies| cookies.len() == OTHERS as usize)
        );
    });
}

/// Removes all pins, and waits until what they kept attached has ended: a worker of the kernel comes to it.
fn unpin(node: &Node) {
    fs::remove_dir_all(node.options.bpffs.join("plumbline")).expect("unpinned");
    let deadline = Instant::now() + testing::patience::LIMIT;
    let is_attached = |hook| {
        let attached = programs_attached(&node.options.cgroup, hook, false);
        !attached.expect("the kernel says").is_empty()
    };
    while Hook::ALL.into_iter().any(is_attached) {
        assert!(Instant::now() < deadline, "links without pins stay attached");
        thread::yield_now();
    }
}

#[test]
fn maps_of_any_size_are_adopted_as_they_are() {
    isolated(|node| {
        for (earlier, now) in [(SMALL, LARGE), (LARGE, SMALL)] {
            let datapath = open(node, earlier);
            assert!(!datapath.adopted());
            note_sockets(&datapath, 3);
            let before = noted(&datapath);
            drop(datapath);
            let datapath = open(node, now);
            assert!(datapath.adopted() && datapath.replaced().is_none());
            assert_eq!(sizes(node), (earlier.0, [earlier.1; 3]));
            assert_eq!(noted(&datapath), before);
            drop(datapath);
            unpin(node);
        }
    });
}

#[test]
fn a_new_set_takes_sockets_over_in_maps_of_another_size() {
    isolated(|node| {
        for (earlier, now) in [(SMALL, LARGE), (LARGE, SMALL)] {
            let mut datapath = open(node, earlier);
            datapath.attach().expect("attached");
            note_sockets(&datapath, 3);
            let [_, reverse, sockets] = noted(&datapath);
            drop(datapath);
            pin_array(&node.pins("maps/SLOTS"), 1);
            let mut datapath = open(node, now);
            assert!(!datapath.adopted());
            let replaced = datapath.replaced().expect("there was one");
            assert_eq!(replaced.lost, [], "{replaced:?}");
            datapath.attach().expect("attached");
            // Choices name backends by numbers that are given anew.
            assert_eq!(
                sizes(node),
                (earlier.0, [now.1, earlier.1, earlier.1]),
                "CHOSEN is new"
            );
            assert_eq!(noted(&datapath), [BTreeSet::new(), reverse, sockets]);
            drop(datapath);
            assert!(open(node, SMALL).adopted(), "sizes may differ");
            unpin(node);
        }
    });
}
