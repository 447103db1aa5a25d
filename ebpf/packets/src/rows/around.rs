//! Connections to a backend's own address, where a flow has had the same client, port and backend.

use super::prelude::*;

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        frontend,
        cluster,
        pod,
        other_pod,
        pod_client,
        node_client,
        far,
        ..
    } = ends(at);
    let established = OPEN | ANSWER | ESTABLISHED;
    let flow = |protocol, seen| connection(protocol, [client, frontend], [client, pod]).seen(seen);
    let of_pod = |protocol, seen| connection(protocol, [pod_client, cluster], [pod_client, far]).seen(seen);
    let of_node = |seen| connection(TCP, [node_client, cluster], [node_client, far]).seen(seen);
    let mut rows = Vec::new();
    for (what, seen) in [
        ("whose client has finished", CLIENT_FIN),
        ("whose backend has finished", BACKEND_FIN),
        ("that was reset", RESET),
    ] {
        rows.extend([
            row(format!(
                "a pod's SYN to a backend ends a flow {what}, and the answer is the backend's own"
            ))
            .given(remote(at, TCP).connection(of_pod(TCP, established | seen).age(5)))
            .packet(PodIngress, tcp(pod_client, far).syn())
            .left_alone(PacketPassed)
            .packet(PodEgress, tcp(far, pod_client).syn().ack())
            .left_alone(PacketPassed)
            .leaves([]),
            row(format!("a pod's INIT to a backend ends a flow {what}"))
                .given(remote(at, SCTP).connection(of_pod(SCTP, established | seen).age(5)))
                .packet(PodIngress, sctp(pod_client, far, INIT))
                .left_alone(PacketPassed)
                .leaves([]),
            row(format!(
                "the node's SYN to a backend elsewhere ends a flow {what}"
            ))
            .given(remote(at, TCP).connection(of_node(established | seen).age(5)))
            .packet(NodeEgress, tcp(node_client, far).syn())
            .left_alone(PacketPassed)
            .leaves([]),
            row(format!(
                "the node's SYN to a backend in a pod of its own ends a flow {what}"
            ))
            .given(
                local(at, TCP).connection(
                    connection(TCP, [node_client, cluster], [node_client, pod])
                        .seen(established | seen)
                        .age(5),
                ),
            )
            .packet(PodEgress, tcp(node_client, pod).syn())
            .left_alone(PacketPassed)
            .packet(PodIngress, tcp(pod, node_client).syn().ack())
            .left_alone(PacketPassed)
            .leaves([]),
            row(format!("an outside client's SYN to a backend ends a flow {what}"))
                .given(local(at, TCP).connection(flow(TCP, established | seen).age(5)))
                .packet(NodeIngress, tcp(client, pod).syn())
                .left_alone(PacketPassed)
                .leaves([]),
        ]);
    }
    let on_node = (at.node, 8080);
    let to_node = connection(TCP, [pod_client, cluster], [pod_client, on_node]).seen(established | RESET);
    rows.extend([
        row("a SYN to a backend on the node itself, whose address ADDRESSES has, ends a closing flow")
            .given(
                local(at, TCP)
                    .behind(true, on_node, TCP)
                    .connection(to_node.age(5)),
            )
            .packet(PodIngress, tcp(pod_client, on_node).syn())
            .left_alone(PacketPassed)
            .leaves([]),
        row("a SYN to a backend does not end a flow that lives: the client's port is in use")
            .given(remote(at, TCP).connection(of_pod(TCP, established).age(5)))
            .packet(PodIngress, tcp(pod_client, far).syn())
            .left_alone(PacketPassed)
            .leaves([of_pod(TCP, established).age(5)]),
        row("a flow that nobody has now ends when the client refuses its answer and tries again")
            .given(remote(at, TCP).connection(of_pod(TCP, established).age(5)))
            .packet(PodIngress, tcp(pod_client, far).syn())
            .left_alone(PacketPassed)
            .packet(PodEgress, tcp(far, pod_client).syn().ack())
            .passed_on(FlowReplied, tcp(cluster, pod_client).syn().ack())
            .packet(PodIngress, tcp(pod_client, cluster).rst())
            .passed_on(FlowForwarded, tcp(pod_client, far).rst())
            .packet(PodIngress, tcp(pod_client, far).syn())
            .left_alone(PacketPassed)
            .leaves([]),
        row("a flow's own SYN, translated, does not end it where it leaves")
            .given(local(at, TCP).connection(flow(TCP, established | RESET).age(5)))
            .packet(NodeIngress, tcp(client, frontend).syn())
            .passed_on(FlowOpened, tcp(client, pod).syn())
            .packet(PodEgress, tcp(client, pod).syn())
            .left_alone(PacketPassed)
            .leaves([flow(TCP, OPEN)]),
        row("no other packet to a backend ends a flow, but what begins a connection")
            .given(remote(at, TCP).connection(of_pod(TCP, established | RESET).age(5)))
            .packet(PodIngress, tcp(pod_client, far).ack())
            .left_alone(PacketPassed)
            .packet(PodIngress, tcp(pod_client, far).syn().ack())
            .left_alone(PacketPassed)
            .leaves([of_pod(TCP, established | RESET).age(5)]),
        row("a SYN to another backend of the same service ends no flow")
            .given(remote(at, TCP).connection(of_pod(TCP, established | RESET).age(5)))
            .packet(PodIngress, tcp(pod_client, other_pod).syn())
            .left_alone(PacketPassed)
            .leaves([of_pod(TCP, established | RESET).age(5)]),
        row("a SYN from a backend to a client, of the ports of a closing flow, is no client's")
            .given(local(at, TCP).connection(flow(TCP, established | RESET).age(5)))
            .packet(NodeIngress, tcp(client, (pod.0, pod.1 + 1)).syn())
            .left_alone(PacketPassed)
            .leaves([flow(TCP, established | RESET).age(5)]),
        row("a flow of which the client's entry is gone stays: it can not be told whether it ends")
            .given(remote(at, TCP).connection(of_pod(TCP, established | RESET).without_forward().age(5)))
            .packet(PodIngress, tcp(pod_client, far).syn())
            .left_alone(PacketPassed)
            .leaves([of_pod(TCP, established | RESET).without_forward().age(5)]),
        row("a backend's entry whose client has another one now is not the client's to end")
            .given(
                remote(at, TCP)
                    .connection(of_pod(TCP, established | RESET).without_forward().age(5))
                    .connection(
                        connection(TCP, [pod_client, cluster], [pod_client, other_pod])
                            .seen(established | RESET)
                            .age(5),
                    ),
            )
            .packet(PodIngress, tcp(pod_client, far).syn())
            .left_alone(PacketPassed)
            .leaves([
                of_pod(TCP, established | RESET).without_forward().age(5),
                connection(TCP, [pod_client, cluster], [pod_client, other_pod])
                    .seen(established | RESET)
                    .age(5),
            ]),
    ]);
    rows.extend(own_ports(at));
    rows
}

/// What the node's own sockets send to a backend, from a port that a flow has there.
fn own_ports(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        frontend,
        cluster,
        pod,
        node_client,
        far,
        ..
    } = ends(at);
    let begin = |protocol, to| match protocol {
        TCP => tcp(node_client, to).syn(),
        SCTP => sctp(node_client, to, INIT),
        _ => udp(node_client, to),
    };
    let moved = (at.node, SNAT_PORT);
    let apart = |protocol, to| connection(protocol, [node_client, to], [moved, to]).by(0, 0);
    let opened = |protocol| if protocol == UDP { 0 } else { OPEN };
    let mut rows = Vec::new();
    for (what, protocol) in [("datagram", UDP), ("SYN", TCP), ("INIT", SCTP)] {
        let seen = if protocol == UDP {
            ANSWER
        } else {
            OPEN | ANSWER | ESTABLISHED
        };
        let of_client = |to| {
            connection(protocol, [client, frontend], [node_client, to])
                .seen(seen)
                .age(5)
        };
        let sent = |to| match protocol {
            TCP => tcp(moved, to).syn(),
            SCTP => sctp(moved, to, INIT),
            _ => udp(moved, to),
        };
        rows.extend([
            row(format!(
                "the node's own {what} to a backend elsewhere leaves by another port, where a client's flow has that one"
            ))
            .given(remote(at, protocol).connection(of_client(far)))
            .packet(NodeEgress, begin(protocol, far))
            .own()
            .passed_on(FlowOpened, sent(far))
            .counted_for(0, 0)
            .leaves([of_client(far), apart(protocol, far).seen(opened(protocol))]),
            row(format!("so does its {what} to a backend in a pod of its own"))
                .given(local(at, protocol).connection(of_client(pod)))
                .packet(PodEgress, begin(protocol, pod))
                .own()
                .passed_on(FlowOpened, sent(pod))
                .counted_for(0, 0)
                .leaves([of_client(pod), apart(protocol, pod).seen(opened(protocol))]),
            row(format!("a {what} that came in by a device is that flow's, and goes on as it is"))
                .given(remote(at, protocol).connection(of_client(far)))
                .packet(NodeEgress, begin(protocol, far))
                .left_alone(PacketPassed)
                .leaves([of_client(far)]),
            row(format!("so does the node's own {what} where its own flow has that port: it was translated before"))
                .given(remote(at, protocol).connection(
                    connection(protocol, [node_client, cluster], [node_client, far]).seen(seen).age(5),
                ))
                .packet(NodeEgress, begin(protocol, far))
                .own()
                .left_alone(PacketPassed)
                .leaves([connection(protocol, [node_client, cluster], [node_client, far]).seen(seen).age(5)]),
        ]);
    }
    let of_client = connection(UDP, [client, frontend], [node_client, far]).seen(ANSWER);
    let asks = apart(UDP, far);
    rows.extend([
        row("the next datagrams leave by that port, too, and the answers are the socket's")
            .given(
                remote(at, UDP)
                    .connection(of_client.age(5))
                    .connection(asks.age(5)),
            )
            .packet(NodeEgress, udp(node_client, far))
            .own()
            .passed_on(FlowForwarded, udp(moved, far))
            .counted_for(0, 0)
            .packet(NodeIngress, udp(far, moved))
            .passed_on(FlowReplied, udp(far, node_client))
            .counted_for(0, 0)
            .leaves([of_client.age(5), asks.seen(ANSWER)]),
        row("so they are of a backend in a pod of its own")
            .given(local(at, UDP).connection(apart(UDP, pod).age(5)))
            .packet(PodEgress, udp(node_client, pod))
            .own()
            .passed_on(FlowForwarded, udp(moved, pod))
            .counted_for(0, 0)
            .packet(PodIngress, udp(pod, moved))
            .passed_on(FlowReplied, udp(pod, node_client))
            .counted_for(0, 0)
            .leaves([apart(UDP, pod).seen(ANSWER)]),
        row("where a flow is over, the node's own datagram keeps its port")
            .given(remote(at, UDP).connection(of_client.age(200)))
            .packet(NodeEgress, udp(node_client, far))
            .own()
            .left_alone(PacketPassed)
            .leaves([of_client.age(200)]),
    ]);
    rows
}

pub(super) fn v4() -> Vec<Row> {
    let at = &crate::test_node::V4;
    let (ends_flow, syn) = ends_flow(at);
    vec![ends_flow(
        "a SYN to a backend behind IPv4 options ends a closing flow",
        syn.option(&option::RECORD_ROUTE),
    )]
}

pub(super) fn v6() -> Vec<Row> {
    let at = &crate::test_node::V6;
    let (ends_flow, syn) = ends_flow(at);
    vec![ends_flow(
        "a SYN to a backend behind IPv6 extension headers ends a closing flow",
        syn.extension(Extension::HopByHop(1))
            .extension(Extension::Destination(1)),
    )]
}

/// A row whose packet ends a closing flow, and the usual packet for it.
fn ends_flow(at: &Addresses) -> (impl Fn(&str, Packet) -> Row, Packet) {
    let Ends {
        cluster,
        pod_client,
        far,
        ..
    } = ends(at);
    let flow =
        connection(TCP, [pod_client, cluster], [pod_client, far]).seen(OPEN | ANSWER | ESTABLISHED | RESET);
    let given = remote(at, TCP).connection(flow.age(5));
    let row = move |says: &str, packet| {
        row(says)
            .given(given.clone())
            .packet(PodIngress, packet)
            .left_alone(PacketPassed)
            .leaves([])
    };
    (row, tcp(pod_client, far).syn())
}
