//! Which flows and sockets go, one by one.

use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
};

use lb_abi::{Address, Backend, Frontend, Port, Service, SlotKey};
use lb_loader::LoaderError;

use super::*;

fn at(text: &str) -> TransportAddress {
    let socket: SocketAddr = text.parse().expect("an address");
    TransportAddress {
        protocol: Protocol::Udp,
        address: socket.ip(),
        port: socket.port(),
    }
}

fn socket(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn batch(departed: &[(ServiceId, &[&str], &str, BackendId)]) -> Batch {
    let mut batch = Batch::default();
    for (service, frontends, backend, id) in departed {
        batch.add(gone(*service, frontends, backend, *id), 2);
    }
    batch
}

fn gone(service: ServiceId, frontends: &[&str], backend: &str, id: BackendId) -> Departed {
    Departed {
        service,
        frontends: frontends.iter().map(|text| at(text)).collect(),
        backend: at(backend),
        id,
    }
}

fn tuple(source: &str, destination: &str) -> Tuple {
    let (source, destination) = (socket(source), socket(destination));
    Tuple {
        source: source.ip().into(),
        destination: destination.ip().into(),
        source_port: Port::new(source.port()),
        destination_port: Port::new(destination.port()),
        protocol: UDP,
        pad: [0; 3],
    }
}

/// Both entries of a flow.
fn flow(service: ServiceId, backend: BackendId, vip: &str, to: &str) -> [(Tuple, Flow); 2] {
    const CLIENT: &str = "10.0.9.9:4000";
    let value = |to, flags| Flow {
        to,
        seen: 0,
        last_seen: 0,
        service,
        backend,
        flags,
        pad: 0,
        claim: 0,
    };
    [
        (tuple(CLIENT, vip), value(tuple(CLIENT, to), 0)),
        (tuple(to, CLIENT), value(tuple(vip, CLIENT), flow_flags::REPLY)),
    ]
}

/// Maps with backends, and with frontends that lead to service ports; the node is 192.0.2.1.
fn maps(backends: &[(BackendId, &str)], frontends: &[(&str, ServiceId)]) -> Maps {
    let frontends = frontends.iter().map(|(text, service)| {
        let value = Frontend {
            internal: *service,
            external: *service,
            ..Frontend::default()
        };
        (at(text).frontend_key(), value)
    });
    let nodes = [
        Address::v4([192, 0, 2, 1]),
        Address::LOOPBACK_V4,
        Address::LOOPBACK_V6,
    ];
    Maps {
        backends: backends.iter().map(|(id, text)| (*id, socket(text))).collect(),
        frontends: RefCell::new(frontends.collect()),
        nodes: nodes.into(),
        slots: RefCell::default(),
        readings: Cell::default(),
    }
}

/// Maps whose entries stay as they are, but frontends and slots.
#[derive(Default)]
struct Maps {
    backends: HashMap<BackendId, SocketAddr>,
    frontends: RefCell<HashMap<FrontendKey, Frontend>>,
    nodes: HashSet<Address>,
    /// Of service port 3: its generation, and its slots.
    slots: RefCell<(u32, Vec<BackendId>)>,
    /// How many slots were read.
    readings: Cell<u32>,
}

impl Maps {
    /// Service port 3 gets other slots.
    fn switch(&self, slots: &[BackendId]) {
        let mut current = self.slots.borrow_mut();
        *current = (current.0 + 1, slots.to_vec());
    }
}

impl LiveMaps for Maps {
    fn frontend(&self, key: &FrontendKey) -> Result<Option<Frontend>, LoaderError> {
        Ok(self.frontends.borrow().get(key).copied())
    }

    fn is_nodes(&self, address: &Address) -> Result<bool, LoaderError> {
        Ok(self.nodes.contains(address))
    }

    fn backend(&self, id: BackendId) -> Result<Option<Backend>, LoaderError> {
        let found = self.backends.get(&id);
        Ok(found.map(|at| Backend {
            address: at.ip().into(),
            port: Port::new(at.port()),
            protocol: UDP,
            flags: 0,
        }))
    }

    fn service(&self, id: ServiceId) -> Result<Option<Service>, LoaderError> {
        let (generation, slots) = &*self.slots.borrow();
        let slots = u32::try_from(slots.len()).expect("a few");
        let there = id == 3 && *generation > 0;
        Ok(there.then_some(Service {
            generation: *generation,
            slots,
        }))
    }

    fn slot(&self, key: &SlotKey) -> Result<Option<BackendId>, LoaderError> {
        self.readings.update(|readings| readings + 1);
        let (generation, slots) = &*self.slots.borrow();
        let index = usize::try_from(key.index).expect("an index");
        let found = slots.get(index).copied();
        Ok(found.filter(|_| key.service == 3 && key.generation == *generation))
    }
}

#[track_caller]
fn check(batch: &Batch, entries: [(Tuple, Flow); 2], there: &[(BackendId, &str)], is_stale: bool) {
    check_with(batch, entries, &maps(there, &[]), is_stale);
}

#[track_caller]
fn check_with(batch: &Batch, entries: [(Tuple, Flow); 2], maps: &Maps, is_stale: bool) {
    for (key, flow) in entries {
        assert_eq!(
            batch.is_stale_flow(&key, &flow, &Lookup::new(maps)),
            is_stale,
            "{key:?}"
        );
    }
}

const VIP: &str = "10.96.0.1:53";

#[test]
fn both_entries_of_a_flow_of_a_backend_that_has_departed_go_and_no_others() {
    let batch = batch(&[(3, &[VIP], "10.0.0.1:5353", 7)]);
    check(&batch, flow(3, 7, VIP, "10.0.0.1:5353"), &[], true);
    check(&batch, flow(4, 7, VIP, "10.0.0.1:5353"), &[], false);
    check(&batch, flow(3, 8, VIP, "10.0.0.2:5353"), &[], false);
    // The number is another backend's by now.
    check(&batch, flow(3, 7, VIP, "10.0.0.2:5353"), &[], false);
    let [(mut key, value), _] = flow(3, 7, VIP, "10.0.0.1:5353");
    key.protocol = lb_abi::TCP;
    assert!(
        !batch.is_stale_flow(&key, &value, &Lookup::new(&Maps::default())),
        "TCP"
    );
}

/// Writes had failed, say, and the batch waited: what has been opened since would lose its answer.
#[test]
fn what_a_backend_has_that_has_come_back_since_stays() {
    let there = maps(&[(7, OLD), (8, NEW)], &[(VIP, 3)]);
    let batch = batch(&[(3, &[VIP], OLD, 7)]);
    let choice = (
        ChosenKey {
            cookie: 1,
            frontend: at(VIP).frontend_key(),
            pad: 0,
        },
        Chosen {
            service: 3,
            backend: 7,
        },
    );
    let lookup = Lookup::new(&there);
    let are_stale = || {
        let flows = flow(3, 7, VIP, OLD).map(|(key, flow)| batch.is_stale_flow(&key, &flow, &lookup));
        (flows, batch.is_stale_choice(&choice.0, &choice.1, &lookup))
    };
    for (slots, is_stale) in [
        ([8].as_slice(), true),
        (&[7, 8], false),
        (&[8], true),
        (&[7], false),
        (&[], true),
    ] {
        // The walk goes on.
        there.switch(slots);
        assert_eq!(are_stale(), ([is_stale; 2], is_stale), "{slots:?}");
        let expected = if is_stale { [1].as_slice() } else { &[] };
        check_sockets_with(&batch, &[noted(1, VIP, OLD)], &there, expected);
    }
    // The number is that of another Service's port now, which has the same backend.
    there.switch(&[7]);
    there.frontends.borrow_mut().clear();
    assert_eq!(are_stale(), ([true; 2], true));
    check_sockets_with(&batch, &[noted(1, VIP, OLD)], &there, &[1]);
}

#[test]
fn a_tcp_connection_is_opened_to_a_backend_that_has_come_back() {
    let there = maps(&[(7, OLD)], &[(VIP, 3)]);
    let mut batch = Batch::default();
    let mut tcp = gone(3, &[VIP], OLD, 7);
    tcp.backend.protocol = Protocol::Tcp;
    batch.add(tcp, 2);
    let (mut key, remembered) = noted(1, VIP, OLD);
    key.backend.protocol = lb_abi::TCP;
    let is_stale = || {
        batch
            .unanswering()
            .is_stale(&key, &remembered, &Lookup::new(&there))
    };
    assert!(is_stale());
    there.switch(&[7]);
    assert!(!is_stale());
}

#[test]
fn the_slots_of_a_service_port_are_read_once_for_each_change_and_not_without_end() {
    let there = maps(&[(7, OLD)], &[(VIP, 3)]);
    let batch = batch(&[(3, &[VIP], OLD, 7)]);
    let lookup = Lookup::new(&there);
    let look = || {
        let [(key, flow), _] = flow(3, 7, VIP, OLD);
        batch.is_stale_flow(&key, &flow, &lookup)
    };
    there.switch(&[7]);
    assert!(!look() && !look());
    assert_eq!(there.readings.get(), 1);
    for _ in 0..100 {
        there.switch(&[7]);
        assert!(!look());
    }
    assert_eq!(there.readings.get(), 64);
}

#[test]
fn of_unlisted_backends_all_flows_end_whose_backend_is_gone() {
    for batch in [
        batch(&[(0, &[], "10.0.0.1:5353", 7)]),
        batch(&[
            (1, &[], "10.0.0.5:53", 1),
            (1, &[], "10.0.0.6:53", 2),
            (1, &[], "10.0.0.7:53", 3),
        ]),
    ] {
        check(&batch, flow(3, 7, VIP, "10.0.0.1:5353"), &[], true);
        check(
            &batch,
            flow(3, 7, VIP, "10.0.0.1:5353"),
            &[(7, "10.0.0.2:5353")],
            true,
        );
        check(
            &batch,
            flow(3, 7, VIP, "10.0.0.1:5353"),
            &[(7, "10.0.0.1:5353")],
            false,
        );
    }
}

fn noted(cookie: u64, frontend: &str, backend: &str) -> (SocketRevnatKey, SocketRevnat) {
    let to = socket(backend);
    let key = SocketRevnatKey {
        cookie,
        backend: Backend {
            address: to.ip().into(),
            port: Port::new(to.port()),
            protocol: UDP,
            flags: 0,
        },
        pad: 0,
    };
    let previous = Backend {
        address: Address::v6([0; 16]),
        port: Port::new(0),
        protocol: 0,
        flags: 0,
    };
    let frontend = at(frontend).frontend_key();
    (key, SocketRevnat { frontend, previous })
}

#[track_caller]
fn check_sockets(batch: &Batch, noted: &[(SocketRevnatKey, SocketRevnat)], there: &[&str], expected: &[u64]) {
    let there: Vec<_> = (1..).zip(there.iter().copied()).collect();
    check_sockets_with(batch, noted, &maps(&there, &[("192.0.2.1:30053", 9)]), expected);
}

#[track_caller]
fn check_sockets_with(
    batch: &Batch,
    noted: &[(SocketRevnatKey, SocketRevnat)],
    maps: &Maps,
    expected: &[u64],
) {
    let serving = maps.backends.values().copied().collect();
    let Ok(sockets) = batch.sockets(&Lookup::new(maps), &serving, |show| {
        noted.iter().for_each(|(key, remembered)| show(key, remembered));
        Ok::<_, Infallible>(())
    });
    let mut cookies: Vec<u64> = sockets.into_values().flatten().collect();
    cookies.sort_unstable();
    assert_eq!(cookies, expected);
}

#[test]
fn sockets_go_that_asked_for_a_frontend_of_the_service_and_got_this_backend() {
    let batch = batch(&[(3, &[VIP], "10.0.0.1:5353", 7)]);
    let sockets = [
        noted(1, VIP, "10.0.0.1:5353"),
        noted(2, VIP, "10.0.0.2:5353"),
        noted(3, "10.96.0.2:53", "10.0.0.1:5353"),
    ];
    check_sockets(&batch, &sockets, &[], &[1]);
}

#[test]
fn a_node_port_is_asked_for_at_any_address_unless_somebody_has_that_very_one() {
    let batch = batch(&[(3, &["0.0.0.0:30053"], "10.0.0.1:5353", 7)]);
    let sockets = [
        noted(1, "127.0.0.1:30053", "10.0.0.1:5353"),
        noted(2, "192.0.2.1:30053", "10.0.0.1:5353"),
        noted(3, "127.0.0.1:30054", "10.0.0.1:5353"),
        noted(4, "[::1]:30053", "10.0.0.1:5353"),
    ];
    check_sockets(&batch, &sockets, &[], &[1]);
}

#[test]
fn sockets_of_a_backend_that_nobody_has_go_where_no_more_is_known() {
    let mut batch = Batch::default();
    batch.add_unlisted_backends();
    let sockets = [noted(1, VIP, "10.0.0.1:5353"), noted(2, VIP, "10.0.0.2:5353")];
    check_sockets(&batch, &sockets, &["10.0.0.2:5353"], &[1]);
}

fn moved(frontends: &[(&str, &[&str])]) -> Batch {
    let mut batch = Batch::default();
    for (frontend, backends) in frontends {
        let moved = MovedFrontend {
            frontend: at(frontend),
            backends: backends.iter().map(|text| at(text)).collect(),
        };
        batch.add_moved(moved, 2);
    }
    batch
}

const OLD: &str = "10.0.0.1:5353";
const NEW: &str = "10.0.0.2:5353";
const NODE_PORT: &str = "0.0.0.0:30053";
const AT_NODE: &str = "192.0.2.1:30053";

#[test]
fn flows_of_a_frontend_that_has_moved_go_unless_its_new_service_port_has_opened_them() {
    let batch = moved(&[(VIP, &[NEW])]);
    let there = maps(&[], &[(VIP, 4), ("10.96.0.2:53", 3)]);
    check_with(&batch, flow(3, 7, VIP, OLD), &there, true);
    // Whatever backend it is: the old one may serve the other Service, too.
    check_with(&batch, flow(3, 8, VIP, NEW), &there, true);
    check_with(&batch, flow(4, 8, VIP, NEW), &there, false);
    check_with(&batch, flow(3, 7, "10.96.0.2:53", OLD), &there, false);
    for (mut key, value) in flow(3, 7, VIP, OLD) {
        key.protocol = lb_abi::TCP;
        assert!(!batch.is_stale_flow(&key, &value, &Lookup::new(&there)), "TCP");
    }
    // Without a service port now.
    check_with(&batch, flow(3, 7, VIP, OLD), &maps(&[], &[]), true);
}

#[test]
fn a_frontend_leads_to_a_service_port_in_either_scope() {
    let batch = moved(&[(VIP, &[NEW])]);
    let there = maps(&[], &[(VIP, 4)]);
    if let Some(frontend) = there.frontends.borrow_mut().get_mut(&at(VIP).frontend_key()) {
        frontend.external = 5;
    }
    for (service, is_stale) in [(3, true), (4, false), (5, false)] {
        check_with(&batch, flow(service, 8, VIP, NEW), &there, is_stale);
    }
}

#[test]
fn flows_of_a_node_port_that_has_moved_go_at_every_address_without_a_frontend_of_its_own() {
    let batch = moved(&[(NODE_PORT, &[NEW])]);
    let own = "192.0.2.9:30053";
    let there = maps(&[], &[(NODE_PORT, 4), (own, 3)]);
    check_with(&batch, flow(3, 7, AT_NODE, OLD), &there, true);
    check_with(&batch, flow(4, 8, AT_NODE, NEW), &there, false);
    check_with(&batch, flow(3, 7, "192.0.2.1:30054", OLD), &there, false);
    check_with(&batch, flow(3, 7, own, OLD), &there, false);
}

#[test]
fn where_a_frontend_of_this_node_was_a_node_port_answers_then() {
    let batch = moved(&[(AT_NODE, &[NEW])]);
    let there = maps(&[], &[(NODE_PORT, 4)]);
    check_with(&batch, flow(3, 7, AT_NODE, OLD), &there, true);
    check_with(&batch, flow(4, 8, AT_NODE, NEW), &there, false);
    let elsewhere = moved(&[("192.0.2.9:30053", &[])]);
    // No node port answers at an address that is not this node's, whatever the number.
    check_with(&elsewhere, flow(4, 8, "192.0.2.9:30053", NEW), &there, true);
}

#[test]
fn datagrams_of_the_nodes_own_sockets_stay() {
    let batch = moved(&[(NODE_PORT, &[])]);
    let [(key, mut value), _] = flow(0, 0, AT_NODE, OLD);
    value.flags = flow_flags::OWN;
    assert!(!batch.is_stale_flow(&key, &value, &Lookup::new(&maps(&[], &[]))));
}

#[test]
fn sockets_of_a_frontend_that_has_moved_go_unless_their_backend_serves_it_now() {
    let batch = moved(&[(VIP, &[NEW]), (NODE_PORT, &[NEW])]);
    let there = maps(&[], &[(VIP, 4), (NODE_PORT, 4), ("192.0.2.9:30053", 3)]);
    let sockets = [
        noted(1, VIP, OLD),
        noted(2, VIP, NEW),
        noted(3, "10.96.0.2:53", OLD),
        noted(4, AT_NODE, OLD),
        noted(5, "127.0.0.9:30053", OLD),
        noted(6, "192.0.2.9:30053", OLD),
        noted(7, AT_NODE, NEW),
    ];
    check_sockets_with(&batch, &sockets, &there, &[1, 4, 5]);
}

/// Its old service port is gone, and has lost the backend.
#[test]
fn a_socket_stays_whose_backend_serves_the_service_port_that_has_the_frontend_now() {
    let there = maps(&[], &[(NODE_PORT, 4)]);
    let told = |again: bool| {
        let mut both = batch(&[(3, &[NODE_PORT], OLD, 7)]);
        both.add_moved(
            MovedFrontend {
                frontend: at(NODE_PORT),
                backends: [at(OLD)].into(),
            },
            2,
        );
        if again {
            both.add(gone(4, &[NODE_PORT], OLD, 7), 9);
        }
        both
    };
    check_sockets_with(&told(false), &[noted(1, AT_NODE, OLD)], &there, &[]);
    // And then it leaves that one.
    check_sockets_with(&told(true), &[noted(1, AT_NODE, OLD)], &there, &[1]);
}

/// It led nowhere for a moment, which is all that the batch knows.
#[test]
fn flows_and_sockets_stay_that_begin_at_a_frontend_which_has_passed_on_since() {
    let batch = moved(&[(VIP, &[])]);
    let (before, after) = (maps(&[], &[]), maps(&[], &[(VIP, 4)]));
    let lookup = Lookup::new(&before);
    let opened = flow(4, 8, VIP, NEW);
    let is_stale = || {
        opened
            .each_ref()
            .map(|(key, flow)| batch.is_stale_flow(key, flow, &lookup))
    };
    assert_eq!(is_stale(), [true; 2]);
    before.frontends.swap(&after.frontends);
    assert_eq!(is_stale(), [false; 2], "the walk goes on");
    check_sockets_with(&batch, &[noted(1, VIP, NEW)], &before, &[]);
    check_sockets_with(&batch, &[noted(1, VIP, NEW)], &after, &[1]);
}

#[test]
fn of_a_frontend_that_moves_twice_the_last_place_counts() {
    let mut batch = moved(&[(VIP, &[NEW])]);
    batch.add_moved(
        MovedFrontend {
            frontend: at(VIP),
            backends: [at(OLD)].into(),
        },
        1,
    );
    let there = maps(&[], &[(VIP, 3)]);
    check_sockets_with(&batch, &[noted(1, VIP, OLD), noted(2, VIP, NEW)], &there, &[2]);
    assert_eq!(batch.of_udp(), 1);
}

#[test]
fn of_unlisted_frontends_all_flows_end_that_the_maps_do_not_lead_to() {
    let batch = moved(&[(VIP, &[]), ("10.96.0.2:53", &[]), ("10.96.0.3:53", &[])]);
    assert_eq!(batch.of_udp(), 3);
    let there = maps(&[], &[("10.96.0.4:53", 3), (NODE_PORT, 4)]);
    check_with(&batch, flow(3, 7, "10.96.0.4:53", OLD), &there, false);
    check_with(&batch, flow(4, 7, "10.96.0.4:53", OLD), &there, true);
    check_with(&batch, flow(4, 7, AT_NODE, OLD), &there, false);
    check_with(&batch, flow(3, 7, "10.96.0.5:53", OLD), &there, true);
    let sockets = [
        noted(1, "10.96.0.4:53", OLD),
        noted(2, "127.0.0.1:30053", OLD),
        noted(3, "10.96.0.5:53", OLD),
    ];
    check_sockets_with(&batch, &sockets, &there, &[3]);
}

#[test]
fn choices_of_unconnected_sockets_end_with_the_backend_and_with_the_frontend() {
    let choice = |frontend: &str, service, backend| {
        let key = ChosenKey {
            cookie: 1,
            frontend: at(frontend).frontend_key(),
            pad: 0,
        };
        (key, Chosen { service, backend })
    };
    let there = maps(&[(7, OLD)], &[(VIP, 3), (NODE_PORT, 4)]);
    let is_stale = |batch: &Batch, (key, chosen): (ChosenKey, Chosen)| {
        batch.is_stale_choice(&key, &chosen, &Lookup::new(&there))
    };
    let departed = batch(&[(3, &[VIP], OLD, 7)]);
    assert!(is_stale(&departed, choice(VIP, 3, 7)));
    assert!(!is_stale(&departed, choice(VIP, 3, 8)) && !is_stale(&departed, choice(VIP, 4, 7)));
    let unlisted = batch(&[(0, &[], NEW, 8)]);
    assert!(is_stale(&unlisted, choice(VIP, 3, 8)) && !is_stale(&unlisted, choice(VIP, 3, 7)));
    let moved = moved(&[(VIP, &[]), (NODE_PORT, &[])]);
    for asked in [AT_NODE, "127.0.0.9:30053"] {
        assert!(
            is_stale(&moved, choice(asked, 3, 7)) && !is_stale(&moved, choice(asked, 4, 7)),
            "{asked}"
        );
    }
    assert!(is_stale(&moved, choice(VIP, 4, 7)) && !is_stale(&moved, choice(VIP, 3, 7)));
}

#[test]
fn a_socket_that_has_connected_to_the_backends_own_address_since_is_left_alone() {
    let own = noted(1, OLD, OLD);
    let departed = batch(&[(3, &[VIP], OLD, 7)]);
    check_sockets(&departed, &[own, noted(2, VIP, OLD)], &[], &[2]);
    let mut unlisted = Batch::default();
    unlisted.add_unlisted_backends();
    unlisted.add_unlisted_frontends();
    check_sockets(&unlisted, &[own, noted(2, VIP, OLD)], &[], &[2]);
}
