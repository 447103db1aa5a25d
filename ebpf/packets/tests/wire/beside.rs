//! What the kernel holds of a packet beside its bytes: the host that the frame is for, and that a program has translated it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lb_abi::{Counter, Frontend, TCP, UDP};
use lb_loader::{Counts, DeviceHook, Wired};
use lb_packets::{
    build::{Packet, tcp, udp},
    rows,
    table::{Given, Row, SERVICE, SNAT_PORT, Verdict, connection},
    test_node::{Addresses, PEER_LINK, UPLINK, V4, V6},
};

use super::wire::{Wire, leaving};

/// A link address that no device here has.
const SOMEBODY: [u8; 6] = [0x02, 0, 0, 0, 0, 0x77];

/// Of the service port that tests are about.
const FRONTEND: Frontend = Frontend {
    internal: SERVICE,
    external: SERVICE,
    flags: 0,
    affinity_seconds: 0,
};

/// A node with this node port of UDP.
fn node_port_of(at: &Addresses, port: u16) -> Given {
    let any = if at.node.is_ipv4() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    } else {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    };
    Given::node(at).frontend((any, port), UDP, FRONTEND)
}

/// A packet that no device has anything to do for.
fn plain(packet: &Packet) -> Wired {
    Wired {
        frame: packet.bytes(),
        offload: None,
    }
}

fn counts(wire: &Wire) -> Counts {
    let detached = wire.stage.detached();
    detached.maps().counters().expect("the counters are read")
}

/// An answer comes to the uplink twice, and is translated each time: its flow is still there.
fn translates_twice(wire: &mut Wire, given: &Given, hook: DeviceHook, answer: &Packet, translated: &Packet) {
    let _scene = wire.stage.set(given).expect("the maps are filled");
    wire.drain();
    for _ in 0..2 {
        wire.send(hook, UPLINK, &plain(answer));
        wire.expect(UPLINK, &leaving(translated.bytes()))
            .expect("it is translated");
    }
}

/// The row of a SYN from outside that opens a flow by SNAT.
fn opening(at: &Addresses) -> Row {
    let opens = |row: &Row| {
        row.steps.len() == 1
            && row.steps.iter().all(|step| {
                let from = |packet: &Packet| {
                    packet.bytes() == tcp((at.client, 40_000), (at.load_balancer, 80)).syn().bytes()
                };
                step.hook == DeviceHook::NodeIngress
                    && step.device == UPLINK
                    && step.verdict == Verdict::Redirect
                    && step.counter == Some(Counter::FlowOpened)
                    && from(&step.packet)
            })
    };
    rows::all()
        .into_iter()
        .find(opens)
        .expect("a row that opens a flow by SNAT")
}

#[test]
fn a_frame_for_another_host_is_left_alone() {
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    let mut wire = Wire::new();
    for at in [&V4, &V6] {
        let row = opening(at);
        let [step] = row.steps.as_slice() else {
            panic!("one packet")
        };
        let _scene = wire.stage.set(&row.given).expect("the maps are filled");
        let flows = || {
            wire.stage
                .detached()
                .maps()
                .conntrack
                .entries()
                .expect("CONNTRACK is read")
        };
        wire.drain();
        let before = counts(&wire);
        let syn = step.packet.clone();
        wire.send(step.hook, step.device, &plain(&syn.link(SOMEBODY, PEER_LINK)));
        // What comes after it has come out: so it has been seen, too.
        let marker = udp((at.node, 9), (at.client, 9)).back();
        wire.send(DeviceHook::NodeEgress, UPLINK, &plain(&marker));
        let others = wire.until(UPLINK, &leaving(marker.bytes()));
        let sent_on = |frame: &Vec<u8>| frame.get(12..) == step.out.bytes().get(12..);
        assert!(!others.iter().any(sent_on), "{others:02x?}");
        assert!(
            flows().iter().all(|(tuple, _)| tuple.protocol != TCP),
            "no flow is opened"
        );
        let counted = |counter| counts(&wire).get(counter) - before.get(counter);
        assert_eq!(counted(Counter::FlowOpened), 0);
        // The frame and the marker; and what the stack itself has to say to its neighbours.
        assert!(counted(Counter::PacketPassed) >= 2);
        // The same frame to this node opens one: only the link address made the difference.
        wire.send(step.hook, step.device, &plain(&step.packet));
        wire.expect(UPLINK, &leaving(step.out.bytes()))
            .expect("it is sent on");
        assert_eq!(
            counts(&wire).get(Counter::FlowOpened) - before.get(Counter::FlowOpened),
            1
        );
    }
}

/// What is translated leaves by a device whose program then sees its new destination.
#[test]
fn what_was_translated_is_not_translated_again_where_it_leaves() {
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    let mut wire = Wire::new();
    for at in [&V4, &V6] {
        let (client, node_port) = ((at.client, 40_000), (at.node, 30_080));
        let far = (at.remote, 8080);
        // The backend's address is an external IP, too.
        let given = node_port_of(at, node_port.1)
            .address(at.remote.into(), 0)
            .frontend(far, UDP, FRONTEND)
            .behind(false, far, UDP)
            .ports(SNAT_PORT, SNAT_PORT);
        let _scene = wire.stage.set(&given).expect("the maps are filled");
        wire.drain();
        let before = counts(&wire);
        wire.send(DeviceHook::NodeIngress, UPLINK, &plain(&udp(client, node_port)));
        let masked = (at.node, SNAT_PORT);
        wire.expect(UPLINK, &leaving(udp(masked, far).hops(63).back().bytes()))
            .expect("it is translated once");
        let opened = counts(&wire).get(Counter::FlowOpened) - before.get(Counter::FlowOpened);
        assert_eq!(opened, 1);
    }
}

/// The program behind it at the device sees a datagram from the node port, which no socket of the node has sent.
#[test]
fn an_answer_that_was_translated_ends_no_flow_at_the_next_program() {
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    let mut wire = Wire::new();
    wire.attach_again();
    for at in [&V4, &V6] {
        let (client, node_port, pod) = ((at.client, 40_000), (at.node, 30_080), (at.pod_a, 8080));
        let given = node_port_of(at, node_port.1)
            .behind(true, pod, UDP)
            .connection(connection(UDP, [client, node_port], [client, pod]));
        let (answer, translated) = (udp(pod, client).back(), udp(node_port, client).back());
        translates_twice(&mut wire, &given, DeviceHook::NodeEgress, &answer, &translated);
    }
}

/// The answers of a node port with a backend elsewhere leave by the device that they came in by, whose program then sees a datagram from
/// the node port.
#[test]
fn an_answer_that_was_translated_ends_no_flow_where_it_leaves() {
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    let mut wire = Wire::new();
    for at in [&V4, &V6] {
        let (client, node_port) = ((at.client, 40_000), (at.node, 30_080));
        let (masked, far) = ((at.node, SNAT_PORT), (at.remote, 8080));
        let flow = connection(UDP, [client, node_port], [masked, far]);
        let given = node_port_of(at, node_port.1)
            .behind(false, far, UDP)
            .connection(flow);
        let (answer, translated) = (udp(far, masked), udp(node_port, client).hops(63).back());
        translates_twice(&mut wire, &given, DeviceHook::NodeIngress, &answer, &translated);
    }
}
