//! What the node sends to itself: by the loopback device, at whose egress Services are, and into which everything goes that is
//! from the node's own address.

use lb_abi::UDP;

use super::{
    addresses::{at, datagram, with_node_port},
    *,
};

const REMOTE: (Address, u16) = (POD, 8080);
const CALLER: (Address, u16) = (NODE, 5000);
const PORT: (Address, u16) = (NODE, 30500);
/// Another address of this node.
const OTHER_NODE: Address = Address::v4([192, 0, 2, 9]);

/// Where a packet goes that is translated.
fn way(hook: Hook, fake: &Fake, packet: &[u8]) -> (Outcome, Tuple, Delivery) {
    let mut work = PacketState::NEW;
    let outcome = match decide(hook, Bytes(packet), fake, &mut work) {
        Ok(outcome) => outcome,
        Err(_) => opened(hook, fake, &mut work),
    };
    (outcome, work.to, work.delivery)
}

#[test]
fn a_node_port_answers_the_node_at_its_own_address_from_there() {
    for (flags, back) in [(0, Hook::NodeIngress), (backend_flags::LOCAL, Hook::PodIngress)] {
        let mut fake = with_node_port(30500);
        fake.maps.backends.get_mut(&5).unwrap().flags = flags;
        assert_eq!(
            way(Hook::NodeEgress, &fake, &segment(CALLER, PORT, SYN)),
            (Outcome::Opened, tuple(CALLER, REMOTE), Delivery::Routed)
        );
        assert_eq!(
            way(back, &fake, &segment(REMOTE, CALLER, SYN | ACK)),
            (Outcome::Replied, tuple(PORT, CALLER), Delivery::Inward),
            "from its own address, the stack takes it in by the loopback device alone"
        );
    }
}

#[test]
fn the_answer_of_another_frontend_comes_in_there_too_as_it_may_be_reached_by_another_device() {
    let fake = remote();
    let vip = (VIP, 80);
    assert_eq!(
        way(Hook::NodeEgress, &fake, &segment(CALLER, vip, SYN)),
        (Outcome::Opened, tuple(CALLER, REMOTE), Delivery::Routed)
    );
    assert_eq!(
        way(Hook::NodeIngress, &fake, &segment(REMOTE, CALLER, SYN | ACK)),
        (Outcome::Replied, tuple(vip, CALLER), Delivery::Inward)
    );
}

#[test]
fn a_backend_at_the_nodes_own_address_answers_the_node() {
    for frontend in [PORT, (VIP, 80)] {
        let mut fake = with_node_port(30500);
        let backend = fake.maps.backends.get_mut(&5).unwrap();
        (backend.address, backend.flags) = (NODE, backend_flags::LOCAL);
        let masked = (NODE, 40_000);
        assert_eq!(
            way(Hook::NodeEgress, &fake, &segment(CALLER, frontend, SYN)),
            (Outcome::Opened, tuple(masked, (NODE, 8080)), Delivery::Inward)
        );
        assert_eq!(
            way(Hook::NodeEgress, &fake, &segment((NODE, 8080), masked, SYN | ACK)),
            (Outcome::Replied, tuple(frontend, CALLER), Delivery::PassedOn),
            "at the loopback device"
        );
    }
}

#[test]
fn sockets_of_the_node_keep_what_they_have_with_each_other() {
    let mut fake = with_node_port(30500);
    fake.socket = Some((Port::new(30500), Socket::Connected));
    let answer = segment((NODE, 7000), PORT, SYN | ACK);
    assert_eq!(at(Hook::NodeEgress, &fake, &answer), Outcome::Passed);
    fake.socket = None;
    let answer = datagram((NODE, 7000), PORT);
    let asked = datagram(PORT, (NODE, 7000));
    assert_eq!(at(Hook::NodeEgress, &fake, &asked), Outcome::Passed);
    assert_eq!(at(Hook::NodeEgress, &fake, &answer), Outcome::Passed);
}

#[test]
fn nothing_is_looked_up_of_what_goes_to_loopback() {
    let mut fake = with_node_port(30500);
    let loopback = Address::LOOPBACK_V4;
    fake.maps.addresses.insert(loopback, address_flags::NODE);
    let packet = datagram((NODE, 30500), (loopback, 30500));
    assert_eq!(at(Hook::NodeEgress, &fake, &packet), Outcome::Passed);
    assert!(fake.is_empty());
}

#[test]
fn an_answer_that_is_translated_is_not_noted_as_the_nodes_own() {
    let mut fake = with_node_port(30500);
    let reply = Tuple {
        protocol: UDP,
        ..tuple(REMOTE, PORT)
    };
    let forward = Tuple {
        protocol: UDP,
        ..tuple((CLIENT, 6000), (VIP, 80))
    };
    let flow = |to, flags| Flow {
        to,
        seen: 0,
        last_seen: fake.maps.now,
        service: 1,
        backend: 5,
        flags,
        pad: 0,
        claim: 1,
    };
    let (there, back) = (
        flow(reply.inverse(), 0),
        flow(forward.inverse(), flow_flags::REPLY | flow_flags::SNAT),
    );
    (&fake).store(&forward, &there);
    (&fake).store(&reply, &back);
    // The client's packet, as it leaves the node: from a port that is a node port's number, too.
    let sent = datagram(PORT, REMOTE);
    fake.maps.now += 25;
    fake.change(&forward, |flow| flow.last_seen += 25);
    fake.maps.now += 20;
    assert_eq!(at(Hook::NodeEgress, &fake, &sent), Outcome::Passed);
    assert_eq!(
        fake.entry(&reply),
        Some(back),
        "the forward entry has when the flow was seen"
    );
    fake.maps.now += 20;
    assert_eq!(at(Hook::NodeEgress, &fake, &sent), Outcome::Passed);
    let flags = fake.entry(&reply).unwrap().flags;
    assert_eq!(flags, flow_flags::OWN, "that flow is over");
}

#[test]
fn a_client_of_the_node_keeps_its_port_unless_a_socket_is_connected_to_the_backend_from_there() {
    for (socket, port) in [
        (Socket::None, CALLER.1),
        (Socket::Bound, CALLER.1),
        (Socket::Connected, 40_000),
    ] {
        let mut fake = remote();
        fake.socket = Some((Port::new(CALLER.1), socket));
        assert_eq!(
            way(Hook::NodeEgress, &fake, &segment(CALLER, (VIP, 80), SYN)),
            (Outcome::Opened, tuple((NODE, port), REMOTE), Delivery::Routed),
            "{socket:?}"
        );
        let flags = fake.entry(&tuple(REMOTE, (NODE, port))).map(|flow| flow.flags);
        let other = if port == CALLER.1 {
            0
        } else {
            flow_flags::OTHER_PORT
        };
        assert_eq!(flags, Some(flow_flags::REPLY | other), "{socket:?}");
    }
}

#[test]
fn where_no_port_is_free_a_client_whose_tuple_a_socket_has_is_not_served() {
    let mut fake = remote();
    (fake.config.snat_first, fake.config.snat_last) = (CALLER.1, CALLER.1);
    fake.socket = Some((Port::new(CALLER.1), Socket::Connected));
    let (outcome, ..) = way(Hook::NodeEgress, &fake, &segment(CALLER, (VIP, 80), SYN));
    assert_eq!(outcome, Outcome::DroppedPortsExhausted);
    assert!(fake.is_empty(), "nothing is left of it");
}

#[test]
fn a_tuple_that_stays_as_it_is_is_the_clients_own_sockets() {
    let mut fake = remote();
    let backend = (OTHER_NODE, 30500);
    fake.maps.addresses.insert(OTHER_NODE, address_flags::NODE);
    let frontend = fake.maps.frontends.values().copied().next().unwrap();
    let key = FrontendKey {
        address: Address::UNSPECIFIED_V4,
        port: Port::new(backend.1),
        protocol: TCP,
        pad: 0,
    };
    fake.maps.frontends.insert(key, frontend);
    let there = fake.maps.backends.get_mut(&5).unwrap();
    (there.address, there.port) = (backend.0, Port::new(backend.1));
    fake.socket = Some((Port::new(CALLER.1), Socket::Connected));
    let (outcome, to, _) = way(Hook::NodeEgress, &fake, &segment(CALLER, backend, SYN));
    assert_eq!((outcome, to), (Outcome::Opened, tuple(CALLER, backend)));
}
