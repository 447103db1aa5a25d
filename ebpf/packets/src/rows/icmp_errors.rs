//! ICMP errors about flows: what they quote is translated, so that the receiver finds its connection.

use super::prelude::*;

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        frontend,
        cluster,
        pod_client,
        pod,
        other_pod,
        far,
        masked,
        ..
    } = ends(at);
    let router = at.gateway;
    let remotely = |protocol| connection(protocol, [client, frontend], [masked, far]).age(7);
    let locally = |protocol| connection(protocol, [client, frontend], [client, pod]).age(7);
    let from_pod = connection(TCP, [pod_client, cluster], [pod_client, other_pod])
        .seen(OPEN | ANSWER | ESTABLISHED)
        .age(7);
    let too_big = Error::too_big(SMALL_MTU);
    // What was sent to the backend, as it was when the router gave up on it, and as the client has sent it.
    let (sent, meant) = (
        tcp(masked, far).ack().data(600).hops(1),
        tcp(client, frontend).ack().data(600).hops(1),
    );
    // What the backend has answered, as it was sent on to the client, and as the backend has sent it.
    let (shown, said) = (
        tcp(frontend, client).ack().data(600).hops(1),
        tcp(pod, client).ack().data(600).hops(1),
    );
    let mut rows = Vec::new();
    for (bytes, how) in [
        (8, "eight bytes"),
        (20, "a whole TCP header"),
        (620, "all of the packet"),
    ] {
        rows.extend([
            row(format!(
                "a router's packet too big about a flow to another node reaches the client, quoting {how}"
            ))
            .given(remote(at, TCP).connection(remotely(TCP)))
            .packet(NodeIngress, quoting(router, at.node, too_big, &sent, bytes))
            .routed(
                FlowRelated,
                quoting(router, client.0, too_big, &meant, bytes).hops(63),
            ),
            row(format!(
                "a router's packet too big about a reply reaches the backend, quoting {how}"
            ))
            .given(local(at, TCP).connection(locally(TCP)))
            .packet(NodeIngress, quoting(router, frontend.0, too_big, &shown, bytes))
            .passed_on(FlowRelated, quoting(router, pod.0, too_big, &said, bytes)),
        ]);
    }
    let datagrams = [udp(client, frontend), udp(masked, far)];
    let packets = [sctp(client, frontend, DATA), sctp(masked, far, DATA)];
    let silent = [
        udp(client, frontend).no_checksum(),
        udp(masked, far).no_checksum(),
    ];
    let [meant_udp, sent_udp] = &datagrams;
    let [meant_sctp, sent_sctp] = &packets;
    rows.extend([
        row("time exceeded on the way to another node reaches the client")
            .given(remote(at, UDP).connection(remotely(UDP)))
            .packet(
                NodeIngress,
                quoting(router, at.node, Error::TIME_EXCEEDED, sent_udp, 8),
            )
            .routed(
                FlowRelated,
                quoting(router, client.0, Error::TIME_EXCEEDED, meant_udp, 8).hops(63),
            ),
        row("a parameter problem on the way to another node reaches the client")
            .given(remote(at, UDP).connection(remotely(UDP)))
            .packet(
                NodeIngress,
                quoting(router, at.node, Error::PARAMETER_PROBLEM, sent_udp, 8),
            )
            .routed(
                FlowRelated,
                quoting(router, client.0, Error::PARAMETER_PROBLEM, meant_udp, 8).hops(63),
            ),
        row("port unreachable that a backend elsewhere sends is shown as the frontend's")
            .given(remote(at, UDP).connection(remotely(UDP)))
            .packet(
                NodeIngress,
                quoting(far.0, at.node, Error::PORT_UNREACHABLE, sent_udp, 100),
            )
            .routed(
                FlowRelated,
                quoting(frontend.0, client.0, Error::PORT_UNREACHABLE, meant_udp, 100).hops(63),
            ),
        row("port unreachable that a backend here sends is shown as the frontend's on its way out")
            .given(local(at, UDP).connection(locally(UDP)))
            .packet(
                NodeEgress,
                quoting(pod.0, client.0, Error::PORT_UNREACHABLE, &udp(client, pod), 8),
            )
            .passed_on(
                FlowRelated,
                quoting(frontend.0, client.0, Error::PORT_UNREACHABLE, meant_udp, 8),
            ),
        row("a router's error about a request keeps the router's address on its way out")
            .given(local(at, UDP).connection(locally(UDP)))
            .packet(
                NodeEgress,
                quoting(at.node, client.0, Error::TIME_EXCEEDED, &udp(client, pod), 8),
            )
            .passed_on(
                FlowRelated,
                quoting(at.node, client.0, Error::TIME_EXCEEDED, meant_udp, 8),
            ),
        row("port unreachable that a client sends about a reply reaches the backend here, from the client")
            .given(local(at, UDP).connection(locally(UDP)))
            .packet(
                NodeIngress,
                quoting(
                    client.0,
                    frontend.0,
                    Error::PORT_UNREACHABLE,
                    &udp(frontend, client),
                    8,
                ),
            )
            .passed_on(
                FlowRelated,
                quoting(client.0, pod.0, Error::PORT_UNREACHABLE, &udp(pod, client), 8),
            )
            .leaves([]),
        row("port unreachable that a client sends reaches the backend elsewhere, from the node")
            .given(remote(at, UDP).connection(remotely(UDP)))
            .packet(
                NodeIngress,
                quoting(
                    client.0,
                    frontend.0,
                    Error::PORT_UNREACHABLE,
                    &udp(frontend, client),
                    8,
                ),
            )
            .routed(
                FlowRelated,
                quoting(at.node, far.0, Error::PORT_UNREACHABLE, &udp(far, masked), 8).hops(63),
            )
            .leaves([]),
        row("an error about a pod's request is about its ClusterIP when it reaches the pod")
            .given(local_other(at, TCP).connection(from_pod))
            .packet(
                PodEgress,
                quoting(
                    router,
                    pod_client.0,
                    too_big,
                    &tcp(pod_client, other_pod).ack(),
                    8,
                ),
            )
            .passed_on(
                FlowRelated,
                quoting(router, pod_client.0, too_big, &tcp(pod_client, cluster).ack(), 8),
            ),
        row("an error that a pod sends about a reply to a ClusterIP's client reaches the backend")
            .given(local_other(at, TCP).connection(from_pod))
            .packet(
                PodIngress,
                quoting(
                    pod_client.0,
                    cluster.0,
                    Error::PORT_UNREACHABLE,
                    &tcp(cluster, pod_client).ack(),
                    8,
                ),
            )
            .passed_on(
                FlowRelated,
                quoting(
                    pod_client.0,
                    other_pod.0,
                    Error::PORT_UNREACHABLE,
                    &tcp(other_pod, pod_client).ack(),
                    8,
                ),
            ),
        row("of quoted SCTP the ports are translated; its checksum is nobody's matter")
            .given(remote(at, SCTP).connection(remotely(SCTP)))
            .packet(NodeIngress, quoting(router, at.node, too_big, sent_sctp, 8))
            .routed(
                FlowRelated,
                quoting(router, client.0, too_big, meant_sctp, 8).hops(63),
            ),
        row("a first fragment that is quoted is known by its ports")
            .given(remote(at, UDP).connection(remotely(UDP)))
            .packet(
                NodeIngress,
                quoting(
                    router,
                    at.node,
                    too_big,
                    &sent_udp.clone().data(64).fragment(0..32),
                    8,
                ),
            )
            .routed(
                FlowRelated,
                quoting(
                    router,
                    client.0,
                    too_big,
                    &meant_udp.clone().data(64).fragment(0..32),
                    8,
                )
                .hops(63),
            ),
        row("a later fragment that is quoted is not looked at, at the node's address")
            .given(remote(at, UDP).connection(remotely(UDP)))
            .packet(
                NodeIngress,
                quoting(
                    router,
                    at.node,
                    too_big,
                    &sent_udp.clone().data(64).fragment(32..64),
                    8,
                ),
            )
            .left_alone(PacketPassed),
        row("a later fragment that is quoted is not looked at, before a service")
            .given(local(at, UDP).connection(locally(UDP)))
            .packet(
                NodeIngress,
                quoting(
                    router,
                    frontend.0,
                    too_big,
                    &udp(frontend, client).data(64).fragment(32..64),
                    8,
                ),
            )
            .dropped(DroppedIcmp),
        row("a quote of less than eight bytes behind the header is about nothing")
            .given(local(at, TCP).connection(locally(TCP)))
            .packet(NodeIngress, quoting(router, frontend.0, too_big, &shown, 7))
            .dropped(DroppedIcmp),
        row("a quote that is no packet is about nothing")
            .given(local(at, TCP).connection(locally(TCP)))
            .packet(
                NodeIngress,
                quoting(
                    router,
                    frontend.0,
                    too_big,
                    &shown.clone().network_bytes(0, &[0x15]),
                    8,
                ),
            )
            .dropped(DroppedIcmp),
        row("an error is about nothing if it does not go to whom it quotes")
            .given(local(at, TCP).connection(locally(TCP)))
            .packet(NodeIngress, quoting(router, cluster.0, too_big, &shown, 8))
            .dropped(DroppedIcmp),
        row("an error about a flow of other ports is not about this one")
            .given(local(at, TCP).connection(locally(TCP)))
            .packet(
                NodeIngress,
                quoting(
                    router,
                    frontend.0,
                    too_big,
                    &tcp(frontend, (client.0, 40_001)).ack(),
                    8,
                ),
            )
            .dropped(DroppedIcmp),
        row("an error that must be routed and has no hops left is dropped: nothing is sent about errors")
            .given(remote(at, UDP).connection(remotely(UDP)))
            .packet(
                NodeIngress,
                quoting(router, at.node, too_big, sent_udp, 8).hops(1),
            )
            .dropped(AnsweredTimeExceeded),
        row("an error behind a tag is translated, and loses the tag where it is routed")
            .given(remote(at, UDP).connection(remotely(UDP)))
            .packet(
                NodeIngress,
                quoting(router, at.node, too_big, sent_udp, 8).tag(C_TAG, 7),
            )
            .routed(
                FlowRelated,
                quoting(router, client.0, too_big, meant_udp, 8).hops(63),
            ),
    ]);
    if at.node.is_ipv4() {
        let [meant, sent] = &silent;
        rows.push(
            row("a quoted UDP checksum of 0 stays")
                .given(remote(at, UDP).connection(remotely(UDP)))
                .packet(NodeIngress, quoting(router, at.node, too_big, sent, 8))
                .routed(FlowRelated, quoting(router, client.0, too_big, meant, 8).hops(63)),
        );
    }
    rows
}

pub(super) fn v4() -> Vec<Row> {
    let at = &crate::test_node::V4;
    let Ends {
        client,
        frontend,
        pod,
        ..
    } = ends(at);
    let known = connection(UDP, [client, frontend], [client, pod]).age(7);
    let with = |packet: Packet| packet.option(&option::RECORD_ROUTE);
    let error = |to: End, quoted: Packet| quoting(at.gateway, to.0, Error::too_big(SMALL_MTU), &quoted, 8);
    vec![
        row("options of what is quoted are looked behind")
            .given(local(at, UDP).connection(known))
            .packet(NodeIngress, error(frontend, with(udp(frontend, client))))
            .passed_on(FlowRelated, error(pod, with(udp(pod, client)))),
        row("options of the error itself are looked behind")
            .given(local(at, UDP).connection(known))
            .packet(NodeIngress, with(error(frontend, udp(frontend, client))))
            .passed_on(FlowRelated, with(error(pod, udp(pod, client)))),
        row("a router's other types are no errors")
            .given(local(at, UDP).connection(known))
            .packet(
                NodeIngress,
                icmp(
                    at.gateway,
                    frontend.0,
                    (5, 1),
                    [192, 0, 2, 77],
                    &udp(frontend, client).network()[..28],
                ),
            )
            .dropped(DroppedIcmp),
    ]
}

pub(super) fn v6() -> Vec<Row> {
    let at = &crate::test_node::V6;
    let Ends {
        client,
        frontend,
        pod,
        ..
    } = ends(at);
    let known = connection(UDP, [client, frontend], [client, pod]).age(7);
    let with = |packet: Packet| {
        packet
            .extension(Extension::HopByHop(1))
            .extension(Extension::Destination(2))
    };
    let error = |to: End, quoted: Packet| quoting(at.gateway, to.0, Error::too_big(SMALL_MTU), &quoted, 8);
    vec![
        row("extension headers of what is quoted are looked behind")
            .given(local(at, UDP).connection(known))
            .packet(NodeIngress, error(frontend, with(udp(frontend, client))))
            .passed_on(FlowRelated, error(pod, with(udp(pod, client)))),
        row("extension headers of the error itself are looked behind")
            .given(local(at, UDP).connection(known))
            .packet(NodeIngress, with(error(frontend, udp(frontend, client))))
            .passed_on(FlowRelated, with(error(pod, udp(pod, client)))),
    ]
}
