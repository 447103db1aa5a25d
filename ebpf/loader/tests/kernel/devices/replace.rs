//! Connections go on when a new set of maps, with other ids, takes another's place.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
};

use lb_abi::{Address, Affinity, AffinityKey, Flow, ServiceId, TCP, UDP, backend_flags, flow_flags};
use lb_loader::{Datapath, DeviceMode, Options};

use super::{
    MODES,
    network::{FAMILIES, Network},
    options,
    packets::{NEVER, announce, ask_on, attach, counted, expose, serve, ways},
};
use crate::support::{Node, isolated, pin_array};

/// Added to all ids by a set of maps that replaces another.
const OTHER: ServiceId = 100;

#[test]
fn connections_go_on_with_other_ids_and_clients_keep_their_affinity() {
    isolated(|node| {
        go_on_after(node, MODES[0], &Clients::KeepTheirs, || {
            pin_array(&node.pins("maps/SLOTS"), 1);
        });
    });
}

#[test]
fn connections_go_on_where_programs_run_and_nothing_is_pinned() {
    isolated(|node| {
        // Filters stay without pins; links that nobody holds would not.
        go_on_after(node, MODES[1], &Clients::ChooseAgain, || {
            fs::remove_dir_all(node.options.bpffs.join("plumbline")).expect("removed");
        });
    });
}

#[test]
fn connections_go_on_where_somebody_has_pinned_other_maps() {
    isolated(|node| {
        go_on_after(node, MODES[0], &Clients::ChooseAgain, || {
            for map in ["CONNTRACK", "META"] {
                fs::remove_file(node.pins("maps").join(map)).expect("removed");
                pin_array(&node.pins("maps").join(map), 1);
            }
        });
    });
}

/// What becomes of the backends that clients with affinity have.
enum Clients {
    KeepTheirs,
    ChooseAgain,
}

/// Opens without programs at sockets: clients are in the cgroup of this test, and would be served there.
fn open(node: &Node, mode: DeviceMode) -> Datapath {
    let options = Options {
        sockets: false,
        ..options(node, mode)
    };
    Datapath::open(&options).expect("the datapath opens")
}

/// Spoils the pins of a load under clients; the next load lets their connections go on.
fn go_on_after(node: &Node, mode: DeviceMode, clients_of_affinity: &Clients, spoil: impl FnOnce()) {
    let network = Network::new();
    let mut datapath = open(node, mode);
    attach(&mut datapath);
    datapath.attach().expect("attached");
    let done = Arc::new(AtomicBool::new(false));
    let mut clients = Vec::new();
    let mut services = Vec::new();
    let each = FAMILIES
        .into_iter()
        .flat_map(|family| [(family, TCP), (family, UDP)]);
    for (id, (family, protocol)) in (1..).zip(each) {
        announce(&datapath, family);
        // TCP by SNAT to the pod elsewhere, UDP to the one here.
        let backend = if protocol == TCP {
            (serve(&network.remote, family.remote), 0)
        } else {
            (serve(&network.pod, family.pod), backend_flags::LOCAL)
        };
        expose(&datapath, family, protocol, id, Some(backend));
        let [way, _] = ways(family);
        let answers = Arc::new(AtomicU32::new(0));
        let (done, counted) = (done.clone(), answers.clone());
        let client = network
            .client
            .run(move || thread::spawn(move || ask_on(protocol, way, backend.0, &done, &counted)));
        services.push((id, family, protocol, backend));
        clients.push((client, answers));
    }
    let progress = || {
        let before: Vec<u32> = clients
            .iter()
            .map(|(_, answers)| answers.load(Ordering::Relaxed))
            .collect();
        while clients.iter().zip(&before).any(|((client, answers), before)| {
            !client.is_finished() && answers.load(Ordering::Relaxed) == *before
        }) {
            thread::yield_now();
        }
    };
    progress();
    let client = AffinityKey {
        service: 1,
        kind: 0,
        client: Address::from(FAMILIES[0].client),
    };
    let affinity = Affinity {
        backend: 1,
        seconds: 12_345,
    };
    let of_nobody = AffinityKey {
        service: 99,
        ..client
    };
    for key in [client, of_nobody] {
        datapath.maps().affinity.put(&key, &affinity).expect("put");
    }
    let flows_before = datapath.maps().conntrack.entries().expect("the flows").len();
    drop(datapath);
    assert_ne!(flows_before, 0, "clients are served by packet programs");
    spoil();

    let mut datapath = open(node, mode);
    assert!(!datapath.adopted());
    for (id, family, protocol, backend) in &services {
        announce(&datapath, *family);
        expose(&datapath, *family, *protocol, id + OTHER, Some(*backend));
    }
    attach(&mut datapath);
    datapath.attach().expect("attached");
    progress();
    done.store(true, Ordering::Relaxed);
    for (client, _) in clients {
        let asked = client.join().expect("no panic");
        asked.unwrap_or_else(|error| panic!("a client was not served: {error}"));
    }

    let flows = datapath.maps().conntrack.entries().expect("the flows");
    assert!(
        flows.len() >= flows_before,
        "{} after {flows_before}",
        flows.len()
    );
    for (tuple, flow) in flows {
        let Flow {
            service,
            backend,
            flags,
            ..
        } = flow;
        let known = services.iter().find(|(id, ..)| id + OTHER == service);
        let Some((id, _, protocol, (address, _))) = known else {
            panic!("{tuple:?} has an id of before: {flow:?}")
        };
        let to = if flags & flow_flags::REPLY == 0 {
            flow.to.destination
        } else {
            tuple.source
        };
        assert_eq!((backend, tuple.protocol), (id + OTHER, *protocol), "{tuple:?}");
        assert_eq!(to, Address::from(address.ip()), "{tuple:?}");
    }
    let kept = datapath.maps().affinity.entries().expect("the clients");
    let expected = (
        AffinityKey {
            service: 1 + OTHER,
            ..client
        },
        Affinity {
            backend: 1 + OTHER,
            ..affinity
        },
    );
    match clients_of_affinity {
        Clients::KeepTheirs => assert_eq!(kept, [expected]),
        Clients::ChooseAgain => assert_eq!(kept, []),
    }
    counted(&datapath, &NEVER);
}
