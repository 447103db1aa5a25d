//! Whole decisions, on a model of the node.

mod addresses;
mod calls;
mod fragments;
pub(in crate::net) mod node;
mod node_to_itself;
mod ports;

use lb_abi::{
    Address, Backend, Config, Flow, Frontend, FrontendKey, Port, Service, SlotKey, TCP, Tuple, seen,
};
use lb_abi::{address_flags, backend_flags, flow_flags, frontend_flags};

use self::node::{Bytes, Fake};
use super::*;
use crate::net::conntrack::{ACK, FIN, RST, SYN};

extern crate std;
use std::{vec, vec::Vec};

const CLIENT: Address = Address::v4([198, 51, 100, 7]);
const VIP: Address = Address::v4([203, 0, 113, 10]);
const NODE: Address = Address::v4([192, 0, 2, 1]);
const POD: Address = Address::v4([10, 244, 2, 2]);

/// A frame with this behind its IP header.
fn frame(protocol: u8, source: Address, destination: Address, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    let length = u16::try_from(payload.len()).expect("a packet's length");
    if source.is_v4() {
        let [high, low] = (20 + length).to_be_bytes();
        packet.extend([8, 0, 0x45, 0, high, low, 0, 1, 0x40, 0, 64, protocol, 0, 0]);
        packet.extend(source.last4());
        packet.extend(destination.last4());
    } else {
        let [high, low] = length.to_be_bytes();
        packet.extend([0x86, 0xdd, 0x60, 0, 0, 0, high, low, protocol, 64]);
        packet.extend(source.octets());
        packet.extend(destination.octets());
    }
    packet.extend(payload);
    packet
}

/// A TCP segment.
fn segment(source: (Address, u16), destination: (Address, u16), flags: u8) -> Vec<u8> {
    let ([a, b], [c, d]) = (source.1.to_be_bytes(), destination.1.to_be_bytes());
    let rest = [0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0];
    let payload = [&[a, b, c, d][..], &rest].concat();
    frame(TCP, source.0, destination.0, &payload)
}

fn tuple(source: (Address, u16), destination: (Address, u16)) -> Tuple {
    Tuple {
        source: source.0,
        destination: destination.0,
        source_port: Port::new(source.1),
        destination_port: Port::new(destination.1),
        protocol: TCP,
        pad: [0; 3],
    }
}

/// A load balancer's IP in front of a pod of another node.
fn remote() -> Fake {
    in_front_of(VIP, NODE, POD)
}

/// [`remote`] with other addresses.
fn in_front_of(vip: Address, node: Address, pod: Address) -> Fake {
    let mut fake = Fake::default();
    let key = FrontendKey {
        address: vip,
        port: Port::new(80),
        protocol: TCP,
        pad: 0,
    };
    let both = Frontend {
        internal: 1,
        external: 1,
        ..Frontend::default()
    };
    fake.maps.frontends.insert(key, both);
    fake.maps
        .addresses
        .extend([(vip, address_flags::VIP), (node, address_flags::NODE)]);
    fake.maps.services.insert(
        1,
        Service {
            generation: 1,
            slots: 1,
        },
    );
    fake.maps.slots.insert(
        SlotKey {
            service: 1,
            generation: 1,
            index: 0,
        },
        5,
    );
    let pod = Backend {
        address: pod,
        port: Port::new(8080),
        protocol: TCP,
        flags: 0,
    };
    fake.maps.backends.insert(5, pod);
    fake.maps.now = 1000;
    fake.config = Config {
        // Packets of one family read one of them.
        node_v4: node,
        node_v6: node,
        snat_first: 40_000,
        snat_last: 40_001,
        ..Config::NONE
    };
    fake
}

/// What becomes of a packet that opens a connection, if it may.
fn opened(hook: Hook, fake: &Fake, work: &mut PacketState) -> Outcome {
    open(hook, fake, work).unwrap_or_else(|new| create(hook, fake, work, new))
}

/// What becomes of a packet at a hook.
fn handled<P: Packet>(hook: Hook, fake: &Fake, packet: P, work: &mut PacketState) -> Outcome {
    match decide(hook, packet, fake, work) {
        Ok(outcome) => outcome,
        Err(Rest::Open) => opened(hook, fake, work),
        Err(Rest::Icmp) => icmp(hook, packet, fake, work),
        Err(Rest::Around) => around(packet, fake, work),
    }
}

/// What becomes of a packet at the uplink.
fn arrives(fake: &Fake, packet: &[u8], work: &mut PacketState) -> Outcome {
    handled(Hook::NodeIngress, fake, Bytes(packet), work)
}

#[test]
fn a_connection_is_opened_forwarded_answered_and_closed() {
    let (fake, mut work) = (remote(), PacketState::NEW);
    let (client, vip, pod) = ((CLIENT, 5000), (VIP, 80), (POD, 8080));
    assert_eq!(
        arrives(&fake, &segment(client, vip, SYN), &mut work),
        Outcome::Opened
    );
    let masked = (NODE, work.to.source_port.get());
    assert_eq!(work.to, tuple(masked, pod));
    assert_eq!(
        (work.delivery, work.service, work.backend),
        (Delivery::Routed, 1, 5)
    );

    assert_eq!(
        arrives(&fake, &segment(pod, masked, SYN | ACK), &mut work),
        Outcome::Replied
    );
    assert_eq!((work.to, work.delivery), (tuple(vip, client), Delivery::Routed));
    for (flags, seen) in [
        (ACK, seen::OPEN | seen::ANSWER | seen::ESTABLISHED),
        (
            FIN | ACK,
            seen::OPEN | seen::ANSWER | seen::ESTABLISHED | seen::CLIENT_FIN,
        ),
    ] {
        assert_eq!(
            arrives(&fake, &segment(client, vip, flags), &mut work),
            Outcome::Forwarded
        );
        assert_eq!(fake.entry(&tuple(client, vip)).map(|flow| flow.seen), Some(seen));
    }
    let flags = fake.entry(&tuple(pod, masked)).map(|flow| flow.flags);
    assert_eq!(flags, Some(flow_flags::REPLY | flow_flags::SNAT));
}

/// The kernel tracks what goes through the stack. Of a connection of which it sees the answers alone, it takes the second one
/// for a new connection, and masquerades it where pods are masqueraded.
#[test]
fn both_directions_of_a_client_that_gets_another_port_and_keeps_its_address_go_through_the_stack() {
    let (mut fake, mut work) = (remote(), PacketState::NEW);
    let backends = fake.maps.backends.values_mut();
    backends.for_each(|backend| backend.flags = backend_flags::LOCAL);
    let (client, other, vip, pod) = ((CLIENT, 5000), (VIP, 81), (VIP, 80), (POD, 8080));
    let frontends = &mut fake.maps.frontends;
    let found: Vec<_> = frontends.iter().map(|(key, value)| (*key, *value)).collect();
    frontends.extend(found.into_iter().map(|(mut key, value)| {
        key.port = Port::new(other.1);
        (key, value)
    }));
    assert_eq!(
        arrives(&fake, &segment(client, other, SYN), &mut work),
        Outcome::Opened
    );
    assert_eq!((work.to, work.delivery), (tuple(client, pod), Delivery::PassedOn));
    for (flags, outcome) in [(SYN, Outcome::Opened), (ACK, Outcome::Forwarded)] {
        assert_eq!(arrives(&fake, &segment(client, vip, flags), &mut work), outcome);
        assert_ne!(work.to.source_port, Port::new(5000));
        assert_eq!((work.to.source, work.delivery), (CLIENT, Delivery::PassedOn));
    }
    let seen_as = (CLIENT, work.to.source_port.get());
    let answer = segment(pod, seen_as, SYN | ACK);
    assert_eq!(arrives(&fake, &answer, &mut work), Outcome::Passed);
    let left = decide(Hook::NodeEgress, Bytes(&answer), &fake, &mut work);
    assert_eq!(left, Ok(Outcome::Replied));
    assert_eq!((work.to, work.delivery), (tuple(vip, client), Delivery::PassedOn));
}

#[test]
fn ports_never_collide_and_run_out() {
    let (fake, mut work) = (remote(), PacketState::NEW);
    let mut ports = Vec::new();
    for client in [5000, 5001] {
        assert_eq!(
            arrives(&fake, &segment((CLIENT, client), (VIP, 80), SYN), &mut work),
            Outcome::Opened
        );
        ports.push(work.to.source_port.get());
    }
    ports.sort_unstable();
    assert_eq!(ports, [40_000, 40_001]);
    let third = segment((CLIENT, 5002), (VIP, 80), SYN);
    assert_eq!(arrives(&fake, &third, &mut work), Outcome::DroppedPortsExhausted);
    assert!(
        fake.entry(&tuple((CLIENT, 5002), (VIP, 80))).is_none(),
        "nothing is left of it"
    );
}

#[test]
fn the_port_of_a_connection_that_is_over_is_given_away_once() {
    let (mut fake, mut work) = (remote(), PacketState::NEW);
    for client in [5000, 5001] {
        arrives(&fake, &segment((CLIENT, client), (VIP, 80), SYN), &mut work);
    }
    fake.maps.now += 61;
    for client in [5002, 5003] {
        let packet = segment((CLIENT, client), (VIP, 80), SYN);
        assert_eq!(
            arrives(&fake, &packet, &mut work),
            Outcome::Opened,
            "client {client}"
        );
    }
    let packet = segment((CLIENT, 5004), (VIP, 80), SYN);
    assert_eq!(arrives(&fake, &packet, &mut work), Outcome::DroppedPortsExhausted);
}

#[test]
fn who_answers_a_client_that_is_never_heard_again_keeps_no_port_for_it() {
    let (mut fake, mut work) = (remote(), PacketState::NEW);
    // Of an address that is nobody's, and one that goes on.
    for (client, goes_on) in [(5000, false), (5001, true)] {
        arrives(&fake, &segment((CLIENT, client), (VIP, 80), SYN), &mut work);
        let masked = (NODE, work.to.source_port.get());
        let answer = segment((POD, 8080), masked, SYN | ACK);
        assert_eq!(arrives(&fake, &answer, &mut work), Outcome::Replied);
        if goes_on {
            arrives(&fake, &segment((CLIENT, client), (VIP, 80), ACK), &mut work);
        }
    }
    fake.maps.now += 61;
    let next = |client| segment((CLIENT, client), (VIP, 80), SYN);
    assert_eq!(arrives(&fake, &next(5002), &mut work), Outcome::Opened);
    assert_eq!(work.to.source_port.get(), 40_000);
    assert_eq!(
        arrives(&fake, &next(5003), &mut work),
        Outcome::DroppedPortsExhausted
    );
}

#[test]
fn an_entry_that_is_being_replaced_is_not_taken_again() {
    let (mut fake, mut work) = (remote(), PacketState::NEW);
    fake.config.snat_last = 40_000;
    arrives(&fake, &segment((CLIENT, 5000), (VIP, 80), SYN), &mut work);
    fake.maps.now += 61;
    let reply = tuple((POD, 8080), (NODE, 40_000));
    fake.change(&reply, |flow: &mut Flow| flow.claim = CLAIMED);
    let packet = segment((CLIENT, 5001), (VIP, 80), SYN);
    assert_eq!(arrives(&fake, &packet, &mut work), Outcome::DroppedPortsExhausted);
}

#[test]
fn ports_of_sockets_are_left_to_them() {
    let (mut fake, mut work) = (remote(), PacketState::NEW);
    fake.socket = Some((Port::new(40_000), Socket::Bound));
    arrives(&fake, &segment((CLIENT, 5000), (VIP, 80), SYN), &mut work);
    assert_eq!(work.to.source_port.get(), 40_001);
}

/// The pod is this node's, and the client one of the cluster's.
fn of_cluster() -> Fake {
    let mut fake = remote();
    fake.of_cluster = Some(CLIENT);
    fake.maps
        .backends
        .entry(5)
        .and_modify(|pod| pod.flags = backend_flags::LOCAL);
    fake
}

#[test]
fn a_client_of_the_cluster_comes_from_the_node_to_a_pod_and_nobody_else_does() {
    let (fake, mut work) = (of_cluster(), PacketState::NEW);
    let opened = |work: &mut PacketState, client| {
        let packet = segment((client, 5000), (VIP, 80), SYN);
        assert_eq!(arrives(&fake, &packet, work), Outcome::Opened);
        (work.to.source, work.delivery)
    };
    assert_eq!(opened(&mut work, CLIENT), (NODE, Delivery::Routed));
    let stranger = Address::v4([198, 51, 100, 8]);
    assert_eq!(opened(&mut work, stranger), (stranger, Delivery::PassedOn));
}

#[test]
fn a_client_of_the_cluster_has_another_port_where_the_policy_or_the_backend_asks_for_its_address() {
    for (silent, at_node) in [(true, false), (false, true)] {
        let (mut fake, mut work) = (of_cluster(), PacketState::NEW);
        if silent {
            let frontends = fake.maps.frontends.values_mut();
            frontends.for_each(|frontend| frontend.flags = frontend_flags::SILENT);
        }
        if at_node {
            let backends = fake.maps.backends.values_mut();
            backends.for_each(|backend| backend.address = NODE);
        }
        let packet = segment((CLIENT, 5000), (VIP, 80), SYN);
        assert_eq!(arrives(&fake, &packet, &mut work), Outcome::Opened);
        let (to, flags) = (work.to, fake.entry(&work.to.inverse()).map(|flow| flow.flags));
        assert_eq!(to.source, CLIENT, "silent {silent}, at node {at_node}");
        // A socket of the client may be connected to the backend itself from its own port.
        assert_eq!(to.source_port, Port::new(40_000));
        assert_eq!(flags, Some(flow_flags::REPLY | flow_flags::OTHER_PORT));
        assert_eq!(work.delivery, Delivery::PassedOn);
    }
}

#[test]
fn a_client_of_the_cluster_keeps_its_address_where_no_port_or_no_address_of_the_node_is_there() {
    let (fake, mut work) = (of_cluster(), PacketState::NEW);
    let sources: Vec<_> = [5000, 5001, 5002]
        .into_iter()
        .map(|port| {
            let packet = segment((CLIENT, port), (VIP, 80), SYN);
            assert_eq!(arrives(&fake, &packet, &mut work), Outcome::Opened);
            (work.to.source, work.delivery)
        })
        .collect();
    assert_eq!(sources[..2], [(NODE, Delivery::Routed); 2]);
    assert_eq!(sources[2], (CLIENT, Delivery::PassedOn));
    let flags = fake.entry(&work.to.inverse()).map(|flow| flow.flags);
    assert_eq!(flags, Some(flow_flags::REPLY), "no SNAT");

    let mut nameless = of_cluster();
    nameless.config.node_v4 = Address::UNSPECIFIED_V4;
    let packet = segment((CLIENT, 5000), (VIP, 80), SYN);
    assert_eq!(arrives(&nameless, &packet, &mut work), Outcome::Opened);
    assert_eq!((work.to.source, work.delivery), (CLIENT, Delivery::PassedOn));
    assert_eq!(work.to.source_port, Port::new(40_000));
}

#[test]
fn what_opens_nothing_is_rejected_and_a_reset_is_not() {
    let (fake, mut work) = (remote(), PacketState::NEW);
    for (flags, port, outcome) in [
        (ACK, 80, Outcome::NoFlow),
        (SYN | ACK, 80, Outcome::NoFlow),
        (RST, 80, Outcome::DroppedNoFlow),
        (SYN, 81, Outcome::UnknownPort),
        (RST | ACK, 81, Outcome::DroppedNoFlow),
    ] {
        let packet = segment((CLIENT, 5000), (VIP, port), flags);
        assert_eq!(
            arrives(&fake, &packet, &mut work),
            outcome,
            "{flags:#b} to {port}"
        );
    }
}

#[test]
fn a_packet_at_its_last_hop_leaves_no_trace() {
    let (fake, mut work) = (remote(), PacketState::NEW);
    let mut packet = segment((CLIENT, 5000), (VIP, 80), SYN);
    packet[14 + 8] = 1;
    assert_eq!(arrives(&fake, &packet, &mut work), Outcome::TimeExceeded);
    assert!(fake.is_empty());
}

#[test]
fn every_outcome_counts_on_a_counter_of_its_own() {
    let (fake, mut work) = (remote(), PacketState::NEW);
    let stranger = segment((CLIENT, 5000), (POD, 80), SYN);
    let passed = arrives(&fake, &stranger, &mut work);
    assert_eq!(
        (passed, passed.disposition()),
        (Outcome::Passed, Disposition::Leave)
    );
    assert_eq!(passed.counter().name(), "packet_passed");
    let martian = segment((NODE, 5000), (VIP, 80), SYN);
    let dropped = arrives(&fake, &martian, &mut work);
    assert_eq!(
        (dropped, dropped.disposition()),
        (Outcome::DroppedMartian, Disposition::Drop)
    );
}

#[test]
fn no_packet_that_is_cut_off_is_translated() {
    let (fake, mut work) = (remote(), PacketState::NEW);
    let packet = segment((CLIENT, 5000), (VIP, 80), SYN);
    for length in 14..packet.len() {
        let expected = if length < 34 {
            Outcome::Unreadable
        } else {
            Outcome::DroppedMalformed
        };
        assert_eq!(
            arrives(&fake, &packet[..length], &mut work),
            expected,
            "{length} bytes"
        );
    }
    assert!(fake.is_empty());
}
