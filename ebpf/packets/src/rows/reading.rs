//! Packets that are not what their headers say: dropped where they are for a service, left alone otherwise.

use std::net::IpAddr;

use super::prelude::*;

/// A packet that is malformed, at three destinations: a VIP, an address of the node's, anybody's.
fn malformed(says: &str, at: &Addresses, protocol: u8, packet: &dyn Fn(End) -> Packet) -> Vec<Row> {
    let Ends {
        frontend,
        cluster,
        node_port,
        far,
        ..
    } = ends(at);
    vec![
        row(format!("{says} is dropped before a service"))
            .given(local(at, protocol))
            .packet(NodeIngress, packet(frontend))
            .dropped(DroppedMalformed),
        row(format!(
            "{says} is dropped before a service, on its way out of a pod"
        ))
        .given(local(at, protocol))
        .packet(PodIngress, packet(cluster))
        .dropped(DroppedMalformed),
        row(format!("{says} is the stack's, at the node's own address"))
            .given(local(at, protocol))
            .packet(NodeIngress, packet(node_port))
            .left_alone(PacketPassed),
        row(format!("{says} is left alone on its way to anybody else"))
            .given(local(at, protocol))
            .packet(NodeEgress, packet(far))
            .left_alone(PacketPassed),
    ]
}

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends { client, frontend, .. } = ends(at);
    let segment = |to| tcp(client, to).syn().data(8);
    let datagram = |to| udp(client, to);
    let mut rows = [
        malformed(
            "a TCP header of less than 20 bytes by its data offset",
            at,
            TCP,
            &|to| segment(to).transport_bytes(12, &[0x40]),
        ),
        malformed("a TCP header that goes on beyond the packet", at, TCP, &|to| {
            segment(to).transport_bytes(12, &[0x80])
        }),
        malformed(
            "a UDP datagram with a length of less than its header",
            at,
            UDP,
            &|to| datagram(to).transport_bytes(4, &[0, 7]),
        ),
        malformed("a UDP datagram that is longer than its packet", at, UDP, &|to| {
            datagram(to).transport_bytes(4, &[0, 21])
        }),
        malformed("SCTP without a chunk", at, SCTP, &|to| {
            sctp(client, to, INIT).cut_payload(12)
        }),
        malformed("TCP of 19 bytes", at, TCP, &|to| {
            tcp(client, to).syn().cut_payload(19)
        }),
        malformed("UDP of 7 bytes", at, UDP, &|to| datagram(to).cut_payload(7)),
        malformed("ICMP of 7 bytes", at, UDP, &|to| {
            echo(client.0, to.0).cut_payload(7)
        }),
        malformed("a packet that is longer than what is there", at, UDP, &|to| {
            datagram(to).short(1)
        }),
    ]
    .concat();
    rows.extend([
        row("a UDP datagram may be shorter than its packet: what is beyond is carried along")
            .given(local(at, UDP))
            .packet(
                NodeIngress,
                datagram(frontend).data(8).transport_bytes(4, &[0, 14]),
            )
            .passed_on(
                FlowOpened,
                udp(client, ends(at).pod).data(8).transport_bytes(4, &[0, 14]),
            )
            .still_wrong()
            .leaves([connection(UDP, [client, frontend], [client, ends(at).pod])]),
        row("what Ethernet pads a short packet with stays where it is")
            .given(local(at, UDP))
            .packet(NodeIngress, datagram(frontend).data(1).padded(17))
            .passed_on(FlowOpened, udp(client, ends(at).pod).data(1).padded(17))
            .leaves([connection(UDP, [client, frontend], [client, ends(at).pod])]),
        row("the version must be that of the EtherType")
            .given(local(at, TCP))
            .packet(NodeIngress, segment(frontend).network_bytes(0, &[0x55]))
            .left_alone(PacketUnreadable),
    ]);
    rows
}

pub(super) fn v4() -> Vec<Row> {
    let at = &crate::test_node::V4;
    let Ends { client, frontend, .. } = ends(at);
    let segment = |to| tcp(client, to).syn().data(8);
    let mut rows = [
        malformed("a header of less than 20 bytes", at, TCP, &|to| {
            segment(to).network_bytes(0, &[0x44])
        }),
        malformed("a header that goes on beyond the packet", at, TCP, &|to| {
            segment(to).network_bytes(0, &[0x4f])
        }),
        malformed("a total length of less than the header's", at, TCP, &|to| {
            segment(to).network_bytes(2, &[0, 19])
        }),
    ]
    .concat();
    rows.push(
        row("without a whole header, here behind a tag, nothing is known of a packet")
            .given(local(at, TCP))
            .packet(NodeIngress, segment(frontend).tag(C_TAG, 7).short(28 + 1))
            .left_alone(PacketUnreadable),
    );
    rows
}

pub(super) fn v6() -> Vec<Row> {
    let at = &crate::test_node::V6;
    let Ends { client, frontend, .. } = ends(at);
    let segment = |to| tcp(client, to).syn().data(8);
    // IPv4's addresses, as IPv6 writes them.
    let v4 = &crate::test_node::V4;
    let mapped = |(address, port): End| match address {
        IpAddr::V4(address) => (IpAddr::V6(address.to_ipv6_mapped()), port),
        IpAddr::V6(_) => (address, port),
    };
    let usual = ends(v4);
    let (from, to) = (mapped(usual.client), mapped(usual.frontend));
    let known = connection(TCP, [usual.client, usual.frontend], [usual.client, usual.pod])
        .seen(OPEN | ANSWER | ESTABLISHED);
    let masked = connection(TCP, [usual.client, usual.frontend], [usual.masked, usual.far])
        .seen(OPEN | ANSWER | ESTABLISHED);
    vec![
        row("without a whole header, here behind a tag, nothing is known of a packet")
            .given(local(at, TCP))
            .packet(NodeIngress, segment(frontend).tag(C_TAG, 7).short(28 + 1))
            .left_alone(PacketUnreadable),
        row("IPv6 between IPv4-mapped addresses is not for an IPv4 service")
            .given(local(v4, TCP))
            .packet(NodeIngress, tcp(from, to).syn())
            .left_alone(PacketPassed),
        row("IPv6 between IPv4-mapped addresses is not rejected for an IPv4 service")
            .given(nobody(v4, UDP))
            .packet(PodIngress, udp(from, to))
            .left_alone(PacketPassed),
        row("IPv6 between IPv4-mapped addresses does not reset an IPv4 connection")
            .given(local(v4, TCP).connection(known.age(5)))
            .packet(NodeIngress, tcp(from, to).rst())
            .left_alone(PacketPassed),
        row("IPv6 between IPv4-mapped addresses is no reply of an IPv4 connection")
            .given(local(v4, TCP).connection(known.age(5)))
            .packet(NodeEgress, tcp(mapped(usual.pod), from).fin().ack())
            .left_alone(PacketPassed),
        row("IPv6 between IPv4-mapped addresses reaches a pod as it is")
            .given(local(v4, TCP).connection(known.age(5)))
            .packet(PodEgress, tcp(mapped(usual.pod), from).ack())
            .left_alone(PacketPassed),
        row("IPv6 from an IPv4-mapped address is nobody's, to an IPv6 service")
            .given(local(at, TCP))
            .packet(NodeIngress, tcp(from, frontend).syn())
            .left_alone(PacketPassed),
        row("an ICMPv6 error between IPv4-mapped addresses is not about an IPv4 connection")
            .given(remote(v4, TCP).connection(masked.age(5)))
            .packet(
                NodeIngress,
                quoting(
                    mapped(usual.far).0,
                    mapped(usual.masked).0,
                    Error::too_big(SMALL_MTU),
                    &tcp(mapped(usual.masked), mapped(usual.far)).ack(),
                    8,
                ),
            )
            .left_alone(PacketPassed),
    ]
}
