//! RST and port unreachable, and where they are not sent.

use super::prelude::*;

/// Where tables' TCP begins.
const SEQUENCE: u32 = 0x1000_0001;
const ACKNOWLEDGED: u32 = 0x2000_0002;

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        frontend,
        cluster,
        node_port,
        pod_client,
        node_client,
        ..
    } = ends(at);
    let unknown = (frontend.0, 81);
    let segment = || tcp(client, frontend);
    let rejected = |says: &str, packet: Packet, answer: Packet| {
        row(says)
            .given(nobody(at, TCP))
            .packet(NodeIngress, packet)
            .answered(RejectedNoBackend, answer)
    };
    let mut rows =
        vec![
        rejected(
            "a SYN to a service without backends is answered by RST, which acknowledges the SYN",
            segment().syn(),
            reset(frontend, client, 0, Some(SEQUENCE + 1)),
        ),
        rejected(
            "data in a SYN is acknowledged with it",
            segment().syn().data(10),
            reset(frontend, client, 0, Some(SEQUENCE + 11)),
        ),
        rejected(
            "options of a SYN are not acknowledged",
            segment().syn().tcp_options(&[2, 4, 5, 0xb4]),
            reset(frontend, client, 0, Some(SEQUENCE + 1)),
        ),
        rejected(
            "a FIN counts one",
            segment().fin().data(3),
            reset(frontend, client, 0, Some(SEQUENCE + 4)),
        ),
        rejected(
            "SYN and FIN count two",
            segment().syn().fin(),
            reset(frontend, client, 0, Some(SEQUENCE + 2)),
        ),
        rejected(
            "data without any flag is acknowledged",
            segment().data(5),
            reset(frontend, client, 0, Some(SEQUENCE + 5)),
        ),
        rejected(
            "what wraps around is acknowledged around it",
            segment().syn().data(9).numbers(u32::MAX - 2, 0),
            reset(frontend, client, 0, Some(7)),
        ),
        rejected(
            "to a segment with ACK, RST has the number that it asks for, and no ACK",
            segment().ack().data(5),
            reset(frontend, client, ACKNOWLEDGED, None),
        ),
        rejected(
            "to SYN and ACK, too",
            segment().syn().ack(),
            reset(frontend, client, ACKNOWLEDGED, None),
        ),
        rejected(
            "a segment with its last hop is answered: it has arrived",
            segment().syn().hops(1),
            reset(frontend, client, 0, Some(SEQUENCE + 1)),
        ),
        rejected(
            "what Ethernet pads a segment with is not acknowledged",
            segment().syn().padded(6),
            reset(frontend, client, 0, Some(SEQUENCE + 1)),
        ),
        row("a RST to a service without backends is not answered")
            .given(nobody(at, TCP))
            .packet(NodeIngress, segment().rst())
            .dropped(DroppedNoFlow),
        row("a RST to an unknown port is not answered")
            .given(local(at, TCP))
            .packet(NodeIngress, tcp(client, unknown).rst().ack())
            .dropped(DroppedNoFlow),
        row("a SYN to a port that a service does not have is answered by RST")
            .given(local(at, TCP))
            .packet(NodeIngress, tcp(client, unknown).syn())
            .answered(RejectedUnknownPort, reset(unknown, client, 0, Some(SEQUENCE + 1))),
        row("a datagram to a port that a service has of another protocol is answered by port unreachable")
            .given(local(at, TCP))
            .packet(NodeIngress, udp(client, frontend))
            .answered(RejectedUnknownPort, unreachable(frontend, client, &udp(client, frontend))),
        row("a datagram to a service without backends is answered by port unreachable")
            .given(nobody(at, UDP))
            .packet(NodeIngress, udp(client, frontend).data(300).class(0x2e).hops(3))
            .answered(
                RejectedNoBackend,
                unreachable(frontend, client, &udp(client, frontend).data(300).class(0x2e).hops(3)),
            ),
        row("an INIT to a service without backends is answered by port unreachable")
            .given(nobody(at, SCTP))
            .packet(NodeIngress, sctp(client, frontend, INIT))
            .answered(RejectedNoBackend, unreachable(frontend, client, &sctp(client, frontend, INIT))),
        row("a pod's SYN to a service without backends is answered at its device")
            .given(nobody(at, TCP))
            .packet(PodIngress, tcp(pod_client, cluster).syn())
            .answered(RejectedNoBackend, reset(cluster, pod_client, 0, Some(SEQUENCE + 1))),
        row("a pod's datagram to a service without backends is answered at its device")
            .given(nobody(at, UDP))
            .packet(PodIngress, udp(pod_client, cluster))
            .answered(RejectedNoBackend, unreachable(cluster, pod_client, &udp(pod_client, cluster))),
        row("the node's own SYN to a service without backends is answered where it would leave")
            .given(nobody(at, TCP))
            .packet(NodeEgress, tcp(node_client, cluster).syn())
            .answered(RejectedNoBackend, reset(cluster, node_client, 0, Some(SEQUENCE + 1))),
        row("the node's own datagram to an unknown port is answered where it would leave, and makes no loop")
            .given(local(at, UDP))
            .packet(NodeEgress, udp(node_client, (cluster.0, 81)))
            .answered(
                RejectedUnknownPort,
                unreachable((cluster.0, 81), node_client, &udp(node_client, (cluster.0, 81))),
            ),
        row("a node port without backends is rejected from the address that was asked")
            .given(nobody(at, TCP))
            .packet(NodeIngress, tcp(client, node_port).syn())
            .answered(RejectedNoBackend, reset(node_port, client, 0, Some(SEQUENCE + 1))),
        row("what is in the middle of a connection that nobody knows is answered by RST")
            .given(local(at, TCP))
            .packet(NodeIngress, segment().ack().data(40))
            .answered(RejectedNoFlow, reset(frontend, client, ACKNOWLEDGED, None)),
        row("SYN and ACK of a connection that nobody knows are answered by RST")
            .given(local(at, TCP))
            .packet(NodeIngress, segment().syn().ack())
            .answered(RejectedNoFlow, reset(frontend, client, ACKNOWLEDGED, None)),
        row("a FIN alone, of a connection that nobody knows, is answered by RST")
            .given(local(at, TCP))
            .packet(NodeIngress, segment().fin())
            .answered(RejectedNoFlow, reset(frontend, client, 0, Some(SEQUENCE + 1))),
        row("a RST of a connection that nobody knows is dropped")
            .given(local(at, TCP))
            .packet(NodeIngress, segment().rst().ack())
            .dropped(DroppedNoFlow),
        row("SYN and RST are a RST")
            .given(local(at, TCP))
            .packet(NodeIngress, segment().syn().rst())
            .dropped(DroppedNoFlow),
        row("the middle of an association that nobody knows is dropped: nothing is defined to be answered")
            .given(local(at, SCTP))
            .packet(NodeIngress, sctp(client, frontend, DATA))
            .dropped(DroppedNoFlow),
        row("what comes by link-layer broadcast is not answered")
            .given(nobody(at, UDP))
            .packet(NodeIngress, udp(client, frontend).link([0xff; 6], crate::test_node::PEER_LINK))
            .dropped(RejectedNoBackend),
        row("what comes by link-layer multicast is not answered")
            .given(nobody(at, TCP))
            .packet(NodeIngress, segment().syn().link([0x33, 0x33, 0, 0, 0, 1], crate::test_node::PEER_LINK))
            .dropped(RejectedNoBackend),
        row("an unknown port asked by link-layer broadcast is not answered")
            .given(local(at, UDP))
            .packet(NodeIngress, udp(client, unknown).link([0xff; 6], crate::test_node::PEER_LINK))
            .dropped(RejectedUnknownPort),
    ];
    let connected =
        connection(TCP, [client, frontend], [client, ends(at).pod]).seen(OPEN | ANSWER | ESTABLISHED);
    rows.push(
        row("an established connection goes on when its service's port is gone")
            .given(Given::node(at).connection(connected.age(5)))
            .packet(NodeIngress, segment().ack())
            .passed_on(FlowForwarded, tcp(client, ends(at).pod).ack())
            .leaves([connected]),
    );
    rows
}

pub(super) fn v4() -> Vec<Row> {
    let at = &crate::test_node::V4;
    let Ends { client, frontend, .. } = ends(at);
    let datagram = udp(client, frontend)
        .data(70)
        .option(&option::RECORD_ROUTE)
        .option(&option::RECORD_ROUTE);
    let segment = tcp(client, frontend).syn().option(&option::RECORD_ROUTE);
    vec![
        row("port unreachable quotes the header's options and eight bytes")
            .given(nobody(at, UDP))
            .packet(NodeIngress, datagram.clone())
            .answered(RejectedNoBackend, unreachable(frontend, client, &datagram)),
        row("a RST has no options of the packet's header")
            .given(nobody(at, TCP))
            .packet(NodeIngress, segment)
            .answered(RejectedNoBackend, reset(frontend, client, 0, Some(SEQUENCE + 1))),
    ]
}

pub(super) fn v6() -> Vec<Row> {
    let at = &crate::test_node::V6;
    let Ends { client, frontend, .. } = ends(at);
    let datagram = udp(client, frontend)
        .data(70)
        .extension(Extension::HopByHop(1))
        .extension(Extension::Destination(2));
    let long = udp(client, frontend)
        .data(70)
        .extension(Extension::Destination(12));
    let segment = tcp(client, frontend).syn().extension(Extension::Destination(2));
    let cut = icmp(frontend.0, client.0, (1, 4), [0; 4], &long.network()[..128]);
    vec![
        row("port unreachable quotes extension headers and eight bytes")
            .given(nobody(at, UDP))
            .packet(NodeIngress, datagram.clone())
            .answered(RejectedNoBackend, unreachable(frontend, client, &datagram)),
        row("port unreachable quotes no more than 128 bytes")
            .given(nobody(at, UDP))
            .packet(NodeIngress, long)
            .answered(RejectedNoBackend, answer(cut)),
        row("a RST has no extension headers")
            .given(nobody(at, TCP))
            .packet(NodeIngress, segment)
            .answered(RejectedNoBackend, reset(frontend, client, 0, Some(SEQUENCE + 1))),
    ]
}
