//! Addresses that are not Services' alone: the node's own, machines', and those that no Service has yet.

use lb_abi::{AddressRange, UDP};

use super::*;

const OTHER: Address = Address::v4([192, 0, 2, 9]);

/// What becomes of a packet at a hook.
pub(super) fn at(hook: Hook, fake: &Fake, packet: &[u8]) -> Outcome {
    let mut work = PacketState::NEW;
    handled(hook, fake, Bytes(packet), &mut work)
}

/// A datagram of UDP.
pub(super) fn datagram(source: (Address, u16), destination: (Address, u16)) -> Vec<u8> {
    let ([a, b], [c, d]) = (source.1.to_be_bytes(), destination.1.to_be_bytes());
    frame(UDP, source.0, destination.0, &[a, b, c, d, 0, 8, 0, 0])
}

/// [`remote`], with a node port for TCP and UDP.
pub(super) fn with_node_port(port: u16) -> Fake {
    let mut fake = remote();
    for protocol in [TCP, UDP] {
        let frontend = fake.maps.frontends.values().copied().next().unwrap();
        let key = FrontendKey {
            address: Address::UNSPECIFIED_V4,
            port: Port::new(port),
            protocol,
            pad: 0,
        };
        fake.maps.frontends.insert(key, frontend);
    }
    fake
}

/// The flags of the address of [`remote`].
fn flagged(flags: u32) -> Fake {
    let mut fake = remote();
    fake.maps.addresses.insert(VIP, flags);
    fake
}

#[test]
fn a_socket_keeps_its_connection_when_its_port_becomes_a_node_port() {
    let mut fake = with_node_port(30500);
    fake.socket = Some((Port::new(30500), Socket::Connected));
    for hook in [Hook::NodeIngress, Hook::PodIngress] {
        for flags in [ACK, SYN | ACK, RST, FIN | ACK] {
            let packet = segment((OTHER, 7000), (NODE, 30500), flags);
            assert_eq!(at(hook, &fake, &packet), Outcome::Passed, "{flags:#b}");
        }
        let packet = datagram((OTHER, 7000), (NODE, 30500));
        assert_eq!(at(hook, &fake, &packet), Outcome::Passed);
    }
    // Whoever opens a connection means the node port.
    let packet = segment((CLIENT, 7000), (NODE, 30500), SYN);
    assert_eq!(at(Hook::NodeIngress, &fake, &packet), Outcome::Opened);
}

/// A socket has them, or netfilter, which no program here can ask: it gives pods' connections any port.
#[test]
fn what_is_in_the_middle_of_a_connection_at_the_nodes_address_is_the_stacks() {
    let mut fake = with_node_port(30500);
    for hook in [Hook::NodeIngress, Hook::PodIngress] {
        for flags in [ACK, SYN | ACK, RST, FIN | ACK] {
            let packet = segment((OTHER, 7000), (NODE, 30500), flags);
            assert_eq!(at(hook, &fake, &packet), Outcome::Passed, "{flags:#b}");
        }
    }
    // A load balancer's address moves to this node from another one, with its connections, where all choose the same backends.
    fake.maps
        .addresses
        .insert(NODE, address_flags::NODE | address_flags::LOAD_BALANCER);
    let packet = segment((OTHER, 7000), (NODE, 30500), ACK);
    assert_eq!(at(Hook::NodeIngress, &fake, &packet), Outcome::Passed);
    for frontend in fake.maps.frontends.values_mut() {
        frontend.flags |= frontend_flags::MAGLEV;
    }
    assert_ne!(at(Hook::NodeIngress, &fake, &packet), Outcome::Passed);
    fake.socket = Some((Port::new(30500), Socket::Bound));
    let packet = segment((OTHER, 7001), (NODE, 30500), ACK);
    assert_eq!(at(Hook::NodeIngress, &fake, &packet), Outcome::Passed);
}

#[test]
fn datagrams_of_strangers_to_a_server_at_a_node_port_are_the_services() {
    let mut fake = with_node_port(30500);
    fake.socket = Some((Port::new(30500), Socket::Bound));
    let packet = datagram((OTHER, 7000), (NODE, 30500));
    assert_ne!(at(Hook::NodeIngress, &fake, &packet), Outcome::Passed);
}

#[test]
fn whom_a_socket_has_sent_to_from_a_node_port_answers_that_socket() {
    for (hook, back) in [
        (Hook::NodeEgress, Hook::NodeIngress),
        (Hook::PodEgress, Hook::PodIngress),
    ] {
        let mut fake = with_node_port(30501);
        let answer = datagram((OTHER, 7000), (NODE, 30501));
        let sent = datagram((NODE, 30501), (OTHER, 7000));
        assert_eq!(at(hook, &fake, &sent), Outcome::Passed);
        assert_eq!(at(back, &fake, &answer), Outcome::Passed);
        // Others are the Service's clients.
        let stranger = datagram((CLIENT, 7000), (NODE, 30501));
        assert_ne!(at(back, &fake, &stranger), Outcome::Passed);
        fake.maps.now += 121;
        assert_eq!(at(hook, &fake, &sent), Outcome::Passed);
        assert_eq!(at(back, &fake, &answer), Outcome::Passed, "it has sent again");
        fake.maps.now += 121;
        assert_ne!(at(back, &fake, &answer), Outcome::Passed, "silent for too long");
    }
}

#[test]
fn an_answer_that_was_taken_for_a_clients_ends_with_what_the_socket_sends_next() {
    for (hook, back) in [
        (Hook::NodeEgress, Hook::NodeIngress),
        (Hook::PodEgress, Hook::PodIngress),
    ] {
        let fake = with_node_port(30501);
        let answer = datagram((OTHER, 7000), (NODE, 30501));
        let sent = datagram((NODE, 30501), (OTHER, 7000));
        assert_eq!(at(back, &fake, &answer), Outcome::Opened, "it was on its way");
        assert_eq!(at(hook, &fake, &sent), Outcome::Passed);
        assert_eq!(fake.count(), 1, "nothing is left of the flow");
        assert_eq!(at(back, &fake, &answer), Outcome::Passed);
    }
}

#[test]
fn nothing_is_noted_of_datagrams_that_are_not_the_nodes_or_from_no_node_port() {
    let fake = with_node_port(30501);
    for source in [(POD, 30501), (NODE, 30502)] {
        let packet = datagram(source, (OTHER, 7000));
        assert_eq!(at(Hook::NodeEgress, &fake, &packet), Outcome::Passed);
        assert!(fake.is_empty(), "{source:?}");
    }
}

#[test]
fn what_a_socket_leaves_to_packets_has_a_port_of_its_own_with_its_backend() {
    let pod = Address::v4([10, 244, 0, 7]);
    let opens = |fake: &Fake, hook, packet: &[u8]| {
        let mut work = PacketState::NEW;
        assert!(matches!(
            decide(hook, Bytes(packet), fake, &mut work),
            Err(Rest::Open)
        ));
        (
            opened(hook, fake, &mut work),
            work.to.source,
            work.to.source_port.get(),
        )
    };
    let mut fake = with_node_port(30500);
    fake.config.snat_last = fake.config.snat_first;
    let port = fake.config.snat_first;
    let asks = |from| datagram((pod, from), (NODE, 30500));
    assert_eq!(
        opens(&fake, Hook::PodIngress, &asks(5000)),
        (Outcome::Opened, pod, port)
    );
    assert_eq!(
        opens(&fake, Hook::PodIngress, &asks(5001)),
        (Outcome::Opened, pod, 5001),
        "no port is free"
    );
    // A connection is translated at its socket.
    let syn = segment((pod, 5002), (NODE, 30500), SYN);
    assert_eq!(opens(&fake, Hook::PodIngress, &syn), (Outcome::Opened, pod, 5002));
    // Unless the frontend asks for its address.
    let mut fake = remote();
    for frontend in fake.maps.frontends.values_mut() {
        frontend.flags |= frontend_flags::SOURCE_RANGES;
    }
    for (hook, client) in [(Hook::PodIngress, pod), (Hook::NodeEgress, NODE)] {
        let syn = segment((client, 5003), (VIP, 80), SYN);
        let (outcome, source, got) = opens(&fake, hook, &syn);
        assert_eq!((outcome, source), (Outcome::Opened, client));
        assert_ne!(got, 5003, "{hook:?}");
    }
}

#[test]
fn of_a_load_balancers_address_other_ports_are_refused_to_those_outside_alone() {
    let balancer = flagged(address_flags::LOAD_BALANCER);
    let packet = segment((CLIENT, 5000), (VIP, 81), SYN);
    assert_eq!(at(Hook::NodeIngress, &balancer, &packet), Outcome::UnknownPort);
    for hook in [Hook::PodIngress, Hook::NodeEgress] {
        assert_eq!(at(hook, &balancer, &packet), Outcome::Passed, "{hook:?}");
        let cluster_ip = flagged(address_flags::VIP);
        assert_eq!(at(hook, &cluster_ip, &packet), Outcome::UnknownPort, "{hook:?}");
    }
    let own = flagged(address_flags::LOAD_BALANCER | address_flags::NODE);
    assert_eq!(at(Hook::NodeIngress, &own, &packet), Outcome::Passed);
}

#[test]
fn a_load_balancers_address_is_a_client_like_any_other() {
    let mut fake = remote();
    fake.maps.addresses.insert(OTHER, address_flags::LOAD_BALANCER);
    let packet = segment((OTHER, 5000), (VIP, 80), SYN);
    assert_eq!(at(Hook::NodeIngress, &fake, &packet), Outcome::Opened);
    fake.maps.addresses.insert(OTHER, address_flags::VIP);
    let packet = segment((OTHER, 5001), (VIP, 80), SYN);
    assert_eq!(at(Hook::NodeIngress, &fake, &packet), Outcome::DroppedMartian);
}

#[test]
fn a_connection_to_a_machine_goes_on_when_its_address_becomes_a_services() {
    for flags in [0, address_flags::LOAD_BALANCER] {
        let mut fake = flagged(flags);
        for (hook, expected) in [
            (Hook::PodIngress, Outcome::Passed),
            (Hook::NodeEgress, Outcome::Passed),
            (Hook::NodeIngress, Outcome::NoFlow),
        ] {
            let packet = segment((CLIENT, 5000), (VIP, 80), ACK);
            assert_eq!(at(hook, &fake, &packet), expected, "{flags} {hook:?}");
        }
        let packet = segment((CLIENT, 5000), (VIP, 80), SYN);
        assert_eq!(at(Hook::PodIngress, &fake, &packet), Outcome::Opened);
        fake.maps.services.get_mut(&1).unwrap().slots = 0;
        let packet = segment((CLIENT, 5001), (VIP, 80), ACK);
        assert_eq!(
            at(Hook::PodIngress, &fake, &packet),
            Outcome::Passed,
            "no backend"
        );
    }
    let packet = segment((CLIENT, 5000), (VIP, 80), ACK);
    assert_eq!(at(Hook::PodIngress, &remote(), &packet), Outcome::NoFlow);
}

#[test]
fn an_answer_to_another_machine_is_translated_where_it_leaves() {
    let mut fake = remote();
    fake.maps
        .backends
        .entry(5)
        .and_modify(|pod| pod.flags = backend_flags::LOCAL);
    // The client's address is some Service's external one.
    fake.maps.addresses.insert(OTHER, 0);
    let packet = segment((OTHER, 5000), (VIP, 80), SYN);
    assert_eq!(at(Hook::NodeIngress, &fake, &packet), Outcome::Opened);
    let answer = segment((POD, 8080), (OTHER, 5000), SYN | ACK);
    assert_eq!(at(Hook::PodIngress, &fake, &answer), Outcome::Passed);
    assert_eq!(at(Hook::NodeEgress, &fake, &answer), Outcome::Replied);
}

#[test]
fn an_address_that_services_get_and_none_has_is_refused_unless_it_is_the_clusters() {
    let mut fake = remote();
    let free = Address::v4([10, 96, 7, 7]);
    let packet = segment((CLIENT, 5000), (free, 80), SYN);
    for hook in [Hook::NodeIngress, Hook::PodIngress, Hook::NodeEgress] {
        assert_eq!(at(hook, &fake, &packet), Outcome::Passed, "no range is known");
    }
    fake.config.service_ranges[3] = AddressRange::new(Address::v4([10, 96, 0, 0]), 12);
    for hook in [Hook::NodeIngress, Hook::PodIngress, Hook::NodeEgress] {
        assert_eq!(at(hook, &fake, &packet), Outcome::UnknownPort, "{hook:?}");
        assert_ne!(
            at(hook, &fake, &datagram((CLIENT, 5000), (free, 80))),
            Outcome::Passed
        );
    }
    assert_eq!(at(Hook::PodEgress, &fake, &packet), Outcome::Passed);
    fake.of_cluster = Some(free);
    for hook in [Hook::NodeIngress, Hook::PodIngress, Hook::NodeEgress] {
        assert_eq!(at(hook, &fake, &packet), Outcome::Passed, "a pod has it");
    }
}
