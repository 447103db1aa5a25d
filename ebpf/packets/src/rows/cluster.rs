//! Clients of the cluster: their sockets may be connected to a backend itself, so that it must not meet their own address
//! and port a second time.

use lb_abi::{SourceKey, frontend_flags::SILENT};

use super::prelude::*;

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        stranger,
        frontend,
        cluster,
        node_port,
        pod_client,
        pod,
        other_pod,
        far,
        masked,
        ..
    } = ends(at);
    let one = if at.node.is_ipv4() { 32 } else { 128 };
    // A node's address, and a network of pods.
    let inhabited = |given: Given, bits: u8| {
        let range = SourceKey::range(SourceKey::CLUSTER, at.client.into(), bits);
        given.with(Entry::Source(range))
    };
    let from_node = |protocol| connection(protocol, [client, node_port], [masked, pod]);
    let opened = from_node(TCP).seen(OPEN);
    let kept = connection(TCP, [client, node_port], [client, pod]).seen(OPEN);
    let syn = || tcp(client, node_port).syn();
    let held = connection(TCP, [stranger, frontend], [masked, pod])
        .seen(OPEN)
        .age(5);
    let silent = Frontend {
        flags: SILENT,
        ..FRONTEND
    };
    let beside = (client.0, SNAT_PORT);
    let by_other_port = connection(TCP, [client, node_port], [beside, pod]);
    let own = (at.node, 8080);
    let moved = (at.pod_a, SNAT_PORT);
    let left = connection(UDP, [pod_client, node_port], [moved, other_pod]);
    let nameless = |mut given: Given| {
        given.config.node_v4 = Config::NONE.node_v4;
        given.config.node_v6 = Config::NONE.node_v6;
        given
    };
    vec![
        row("a SYN of another node to a node port goes to a backend on this node from the node's address")
            .given(inhabited(local(at, TCP), one))
            .packet(NodeIngress, syn())
            .routed(FlowOpened, tcp(masked, pod).syn().hops(63))
            .leaves([opened]),
        row("a SYN of a pod of another node, too")
            .given(inhabited(local(at, TCP), one - 8))
            .packet(NodeIngress, syn())
            .routed(FlowOpened, tcp(masked, pod).syn().hops(63))
            .leaves([opened]),
        row("a SYN of another node to a load balancer's address, too")
            .given(inhabited(local(at, TCP), one))
            .packet(NodeIngress, tcp(client, frontend).syn())
            .routed(FlowOpened, tcp(masked, pod).syn().hops(63))
            .leaves([connection(TCP, [client, frontend], [masked, pod]).seen(OPEN)]),
        row("a datagram of another node, and its answer")
            .given(inhabited(local(at, UDP), one))
            .packet(NodeIngress, udp(client, node_port))
            .routed(FlowOpened, udp(masked, pod).hops(63))
            .packet(PodIngress, udp(pod, masked))
            .routed(FlowReplied, udp(node_port, client).hops(63))
            .leaves([from_node(UDP).seen(ANSWER)]),
        row("an INIT of another node, and its answer")
            .given(inhabited(local(at, SCTP), one))
            .packet(NodeIngress, sctp(client, node_port, INIT))
            .routed(FlowOpened, sctp(masked, pod, INIT).hops(63))
            .packet(PodIngress, sctp(pod, masked, INIT_ACK))
            .routed(FlowReplied, sctp(node_port, client, INIT_ACK).hops(63))
            .leaves([from_node(SCTP).seen(OPEN | ANSWER)]),
        row("what the backend answers goes back as the node port's, and what it sends to the client itself stays its own")
            .given(inhabited(local(at, TCP), one).connection(opened.age(5)))
            .packet(PodIngress, tcp(pod, masked).syn().ack())
            .routed(FlowReplied, tcp(node_port, client).syn().ack().hops(63))
            .packet(PodIngress, tcp(pod, client).syn().ack())
            .left_alone(PacketPassed)
            .leaves([opened.seen(OPEN | ANSWER)]),
        row("clients that are not of the cluster keep their addresses")
            .given(inhabited(local(at, TCP), one))
            .packet(NodeIngress, tcp(stranger, node_port).syn())
            .passed_on(FlowOpened, tcp(stranger, pod).syn())
            .leaves([connection(TCP, [stranger, node_port], [stranger, pod]).seen(OPEN)]),
        row("a range of the cluster is no range of a service, nor the other way round")
            .given(
                flags(local(at, TCP), at, TCP, frontend_flags::SOURCE_RANGES)
                    .with(Entry::Source(SourceKey::range(SERVICE, at.stranger.into(), one)))
                    .with(Entry::Source(SourceKey::range(SourceKey::CLUSTER, at.client.into(), one))),
            )
            .packet(NodeIngress, tcp(client, frontend).syn())
            .dropped(DroppedSourceRange)
            .packet(NodeIngress, tcp(stranger, frontend).syn())
            .passed_on(FlowOpened, tcp(stranger, pod).syn())
            .leaves([connection(TCP, [stranger, frontend], [stranger, pod]).seen(OPEN)]),
        row("externalTrafficPolicy Local: the address is kept, and the port is another one")
            .given(inhabited(local(at, TCP), one).frontend((unspecified(at), NODE_PORT), TCP, silent))
            .packet(NodeIngress, syn())
            .passed_on(FlowOpened, tcp(beside, pod).syn())
            .packet(NodeEgress, tcp(pod, beside).syn().ack())
            .passed_on(FlowReplied, tcp(node_port, client).syn().ack())
            .leaves([by_other_port.seen(OPEN | ANSWER)]),
        row("what a socket of that client has sent to that backend itself, by the same port, is answered as it was sent")
            .given(
                inhabited(local(at, TCP), one)
                    .frontend((unspecified(at), NODE_PORT), TCP, silent)
                    .connection(by_other_port.seen(OPEN | ANSWER).age(5)),
            )
            .packet(NodeIngress, tcp(client, pod).syn())
            .left_alone(PacketPassed)
            .packet(NodeEgress, tcp(pod, client).syn().ack())
            .left_alone(PacketPassed)
            .leaves([by_other_port.seen(OPEN | ANSWER).age(5)]),
        row("a backend at the node's own address takes nothing from that: the address is kept, and the port is another one")
            .given(inhabited(local(at, TCP), one).behind(true, own, TCP))
            .packet(NodeIngress, syn())
            .passed_on(FlowOpened, tcp(beside, own).syn())
            .leaves([connection(TCP, [client, node_port], [beside, own]).seen(OPEN)]),
        row("clients of this node are told apart by their sockets: a pod's packets keep their addresses")
            .given(
                local_other(at, TCP).with(Entry::Source(SourceKey::range(
                    SourceKey::CLUSTER,
                    at.pod_a.into(),
                    one,
                ))),
            )
            .packet(PodIngress, tcp(pod_client, cluster).syn())
            .passed_on(FlowOpened, tcp(pod_client, other_pod).syn())
            .leaves([connection(TCP, [pod_client, cluster], [pod_client, other_pod]).seen(OPEN)]),
        row("a pod's datagram that its socket leaves to packets gets a port of its own, and the answer comes from the node port")
            .given(local_other(at, UDP))
            .packet(PodIngress, udp(pod_client, node_port))
            .passed_on(FlowOpened, udp(moved, other_pod))
            .packet(PodEgress, udp(other_pod, moved))
            .passed_on(FlowReplied, udp(node_port, pod_client))
            .leaves([left.seen(ANSWER)]),
        row("what the same port sends itself to that backend, its socket by another frontend, is answered as it was sent")
            .given(local_other(at, UDP).connection(left.age(5)))
            .packet(PodIngress, udp(pod_client, other_pod))
            .left_alone(PacketPassed)
            .packet(PodEgress, udp(other_pod, pod_client))
            .left_alone(PacketPassed)
            .leaves([left.age(5)]),
        row("a pod's connection to a node port is translated at its socket, if any is; by packets, it keeps its port")
            .given(local_other(at, TCP))
            .packet(PodIngress, tcp(pod_client, node_port).syn())
            .passed_on(FlowOpened, tcp(pod_client, other_pod).syn())
            .leaves([connection(TCP, [pod_client, node_port], [pod_client, other_pod]).seen(OPEN)]),
        row("where no port is free, it keeps its own after all")
            .given(
                local_other(at, UDP)
                    .connection(connection(UDP, [stranger, frontend], [moved, other_pod]).age(5)),
            )
            .packet(PodIngress, udp(pod_client, node_port))
            .passed_on(FlowOpened, udp(pod_client, other_pod))
            .leaves([
                connection(UDP, [stranger, frontend], [moved, other_pod]).age(5),
                connection(UDP, [pod_client, node_port], [pod_client, other_pod]),
            ]),
        row("to backends elsewhere everybody comes from the node's address, those of the cluster, too")
            .given(inhabited(remote(at, TCP), one))
            .packet(NodeIngress, syn())
            .routed(FlowOpened, tcp(masked, far).syn().hops(63))
            .leaves([connection(TCP, [client, node_port], [masked, far]).seen(OPEN)]),
        row("where no port is free, a client of the cluster keeps its address after all")
            .given(inhabited(local(at, TCP), one).connection(held))
            .packet(NodeIngress, syn())
            .passed_on(FlowOpened, tcp(client, pod).syn())
            .leaves([held, kept]),
        row("where no port is free and its own is another flow's, a packet is dropped")
            .given(
                inhabited(local(at, TCP), one)
                    .connection(held)
                    .connection(connection(TCP, [client, frontend], [client, pod]).seen(OPEN).age(5)),
            )
            .packet(NodeIngress, syn())
            .dropped(DroppedPortsExhausted),
        row("where the node has no address, a client of the cluster keeps its own, too")
            .given(nameless(inhabited(local(at, TCP), one)))
            .packet(NodeIngress, syn())
            .passed_on(FlowOpened, tcp(beside, pod).syn())
            .leaves([by_other_port.seen(OPEN)]),
        row("a flow that was opened before its client was known as one of the cluster goes on as it is")
            .given(inhabited(local(at, TCP), one).connection(kept.seen(OPEN | ANSWER | ESTABLISHED).age(5)))
            .packet(NodeIngress, tcp(client, node_port).ack())
            .passed_on(FlowForwarded, tcp(client, pod).ack())
            .leaves([kept.seen(OPEN | ANSWER | ESTABLISHED)]),
        row("at the last hop a client of the cluster is told so")
            .given(inhabited(local(at, TCP), one))
            .packet(NodeIngress, syn().hops(1))
            .answered(
                AnsweredTimeExceeded,
                answer(quoting(at.node, client.0, Error::TIME_EXCEEDED, &syn().hops(1), 8)),
            )
            .leaves([]),
    ]
}
