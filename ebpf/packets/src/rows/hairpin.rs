//! Clients that are their own backend, and backends that are the node's own.

use super::prelude::*;

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends {
        cluster,
        pod_client,
        node_client,
        pod,
        masked,
        client,
        frontend,
        far,
        ..
    } = ends(at);
    let own = (at.node, 8080);
    let also = (at.node_also, 8080);
    let hairpin = |protocol| connection(protocol, [pod_client, cluster], [masked, pod]);
    vec![
        row("a pod that is its own backend is answered by way of the node: its SYN comes from the node's address")
            .given(local(at, TCP))
            .packet(PodIngress, tcp(pod_client, cluster).syn())
            .routed(FlowOpened, tcp(masked, pod).syn().hops(63))
            .leaves([hairpin(TCP).seen(OPEN)]),
        row("a pod that is its own backend: what it answers to the node goes back to itself, as the frontend's")
            .given(local(at, TCP).connection(hairpin(TCP).seen(OPEN)))
            .packet(PodIngress, tcp(pod, masked).syn().ack())
            .routed(FlowReplied, tcp(cluster, pod_client).syn().ack().hops(63))
            .leaves([hairpin(TCP).seen(OPEN | ANSWER)]),
        row("a pod that is its own backend, by datagrams there and back")
            .given(local(at, UDP))
            .packet(PodIngress, udp(pod_client, cluster))
            .routed(FlowOpened, udp(masked, pod).hops(63))
            .packet(PodIngress, udp(pod, masked))
            .routed(FlowReplied, udp(cluster, pod_client).hops(63))
            .leaves([hairpin(UDP).seen(ANSWER)]),
        row("a pod that is its own backend, by SCTP")
            .given(local(at, SCTP))
            .packet(PodIngress, sctp(pod_client, cluster, INIT))
            .routed(FlowOpened, sctp(masked, pod, INIT).hops(63))
            .leaves([hairpin(SCTP).seen(OPEN)]),
        row("a client outside that is a backend itself gets what it asked for, by way of the node")
            .given(remote(at, TCP))
            .packet(NodeIngress, tcp((far.0, 40_000), frontend).syn())
            .routed(FlowOpened, tcp(masked, far).syn().hops(63))
            .leaves([connection(TCP, [(far.0, 40_000), frontend], [masked, far]).seen(OPEN)]),
        row("a backend at the node's own address receives from the client's own address")
            .given(local(at, TCP).behind(true, own, TCP))
            .packet(NodeIngress, tcp(client, frontend).syn())
            .passed_on(FlowOpened, tcp(client, own).syn())
            .leaves([connection(TCP, [client, frontend], [client, own]).seen(OPEN)]),
        row("what the node sends to a backend of its own comes in by the loopback device")
            .given(local(at, TCP).behind(true, also, TCP))
            .packet(NodeEgress, tcp(node_client, cluster).syn())
            .routed(FlowOpened, tcp(node_client, also).syn().inward())
            .leaves([connection(TCP, [node_client, cluster], [node_client, also]).seen(OPEN)]),
        row("what the node sends to itself comes in by the loopback device, from an allocated port")
            .given(local(at, TCP).behind(true, own, TCP))
            .packet(NodeEgress, tcp(node_client, cluster).syn())
            .routed(FlowOpened, tcp(masked, own).syn().inward())
            .leaves([connection(TCP, [node_client, cluster], [masked, own]).seen(OPEN)]),
        row("what the node answers to itself is the frontend's, at the loopback device")
            .given(local(at, TCP).behind(true, own, TCP).connection(
                connection(TCP, [node_client, cluster], [masked, own]).seen(OPEN),
            ))
            .packet(NodeEgress, tcp(own, masked).syn().ack())
            .passed_on(FlowReplied, tcp(cluster, node_client).syn().ack())
            .leaves([connection(TCP, [node_client, cluster], [masked, own]).seen(OPEN | ANSWER)]),
    ]
}
