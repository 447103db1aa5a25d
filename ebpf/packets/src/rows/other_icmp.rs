//! ICMP that is not about a flow, and protocols that have no ports.

use super::prelude::*;

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        frontend,
        pod_client,
        cluster,
        ..
    } = ends(at);
    let both = address_flags::VIP | address_flags::NODE;
    let error = |to: std::net::IpAddr| {
        quoting(
            at.gateway,
            to,
            Error::TIME_EXCEEDED,
            &tcp((to, 80), client).ack(),
            8,
        )
    };
    let mut rows = vec![
        row("a ping to a service is not answered: nobody is there")
            .given(local(at, TCP))
            .packet(NodeIngress, echo(client.0, frontend.0))
            .dropped(DroppedIcmp),
        row("a ping from a pod to a service is not answered, either")
            .given(local(at, TCP))
            .packet(PodIngress, echo(pod_client.0, cluster.0))
            .dropped(DroppedIcmp),
        row("a ping from the node to a service does not leave the node")
            .given(local(at, TCP))
            .packet(NodeEgress, echo(at.node, cluster.0))
            .dropped(DroppedIcmp),
        row("a ping to the node is the stack's")
            .given(local(at, TCP))
            .packet(NodeIngress, echo(client.0, at.node))
            .left_alone(PacketPassed),
        row("a ping to a service whose address is the node's, too, is the stack's")
            .given(local(at, TCP).address(frontend.0.into(), both))
            .packet(NodeIngress, echo(client.0, frontend.0))
            .left_alone(PacketPassed),
        row("an unknown port of a service's address that is the node's, too, is unknown")
            .given(local(at, TCP).address(frontend.0.into(), both))
            .packet(NodeIngress, tcp(client, (frontend.0, 22)).syn())
            .answered(
                RejectedUnknownPort,
                reset((frontend.0, 22), client, 0, Some(0x1000_0002)),
            ),
        row("a service's address that is the node's, too, has node ports")
            .given(local(at, TCP).address(frontend.0.into(), both))
            .packet(NodeIngress, tcp(client, (frontend.0, NODE_PORT)).syn())
            .passed_on(FlowOpened, tcp(client, ends(at).pod).syn())
            .leaves([connection(TCP, [client, (frontend.0, NODE_PORT)], [client, ends(at).pod]).seen(OPEN)]),
        row("a ping through the node is not ours")
            .given(local(at, TCP))
            .packet(NodeIngress, echo(client.0, at.pod_a))
            .left_alone(PacketPassed),
        row("an error about no flow is dropped before a service")
            .given(local(at, TCP))
            .packet(NodeIngress, error(frontend.0))
            .dropped(DroppedIcmp),
        row("an error about no flow is the stack's, at the node's own address")
            .given(local(at, TCP))
            .packet(NodeIngress, error(at.node))
            .left_alone(PacketPassed),
        row("an error about no flow is left alone on its way out")
            .given(local(at, TCP))
            .packet(NodeEgress, error(client.0))
            .left_alone(PacketPassed),
        row("an error about no flow is left alone on its way to a pod")
            .given(local(at, TCP))
            .packet(PodEgress, error(at.pod_a))
            .left_alone(PacketPassed),
    ];
    for (name, protocol) in [("GRE", 47), ("ESP", 50), ("an unknown protocol", 253)] {
        rows.extend([
            row(format!("{name} to a service is dropped"))
                .given(local(at, TCP))
                .packet(NodeIngress, other(client.0, frontend.0, protocol, &[0xa5; 24]))
                .dropped(DroppedProtocol),
            row(format!("{name} to the node is the stack's"))
                .given(local(at, TCP))
                .packet(NodeIngress, other(client.0, at.node, protocol, &[0xa5; 24]))
                .left_alone(PacketPassed),
            row(format!(
                "{name} to a service whose address is the node's, too, is the stack's"
            ))
            .given(local(at, TCP).address(frontend.0.into(), both))
            .packet(NodeIngress, other(client.0, frontend.0, protocol, &[0xa5; 24]))
            .left_alone(PacketPassed),
        ]);
    }
    // The other family's ICMP means nothing.
    let (name, protocol) = if client.0.is_ipv4() {
        ("ICMPv6", 58)
    } else {
        ("ICMP", 1)
    };
    rows.push(
        row(format!("{name} in this family is a protocol that no service has"))
            .given(local(at, TCP))
            .packet(
                NodeIngress,
                other(client.0, frontend.0, protocol, &[0x80, 0, 0, 0, 0, 0, 0, 0]),
            )
            .dropped(DroppedProtocol),
    );
    rows
}

pub(super) fn v6() -> Vec<Row> {
    let at = &crate::test_node::V6;
    let Ends { client, frontend, .. } = ends(at);
    let mut rows = vec![
        row("a packet without anything behind its header is no service's")
            .given(local(at, TCP))
            .packet(NodeIngress, other(client.0, frontend.0, 59, &[]))
            .dropped(DroppedProtocol),
    ];
    for (name, kind) in [
        ("a router solicitation", 133),
        ("a router advertisement", 134),
        ("a neighbour solicitation", 135),
        ("a neighbour advertisement", 136),
        ("a redirect", 137),
    ] {
        rows.push(
            row(format!("{name} is the stack's, even to a service's address"))
                .given(local(at, TCP))
                .packet(
                    NodeIngress,
                    icmp(client.0, frontend.0, (kind, 0), [0; 4], &[0xa5; 16]),
                )
                .left_alone(PacketPassed),
        );
    }
    rows
}
