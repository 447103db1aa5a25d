//! The first packet of a flow that keeps its source: hooks, scopes, kinds of frontends, protocols.

use super::prelude::*;

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        frontend,
        cluster,
        node_port,
        pod_client,
        node_client,
        pod,
        other_pod,
        far,
        ..
    } = ends(at);
    let other_node_port = (at.node_also, NODE_PORT);
    let internally = Frontend {
        internal: 2,
        ..FRONTEND
    };
    let two = || {
        local(at, TCP)
            .frontend(frontend, TCP, internally)
            .service(2, &[2])
            .local_backend(2, other_pod, TCP)
    };
    vec![
        row("a SYN to a load balancer IP goes to its backend on this node, from the client's own address")
            .given(local(at, TCP))
            .packet(
                NodeIngress,
                tcp(client, frontend)
                    .syn()
                    .tcp_options(&[2, 4, 5, 0xb4, 1, 3, 3, 7]),
            )
            .passed_on(
                FlowOpened,
                tcp(client, pod).syn().tcp_options(&[2, 4, 5, 0xb4, 1, 3, 3, 7]),
            )
            .leaves([connection(TCP, [client, frontend], [client, pod]).seen(OPEN)]),
        row("a SYN to a node port goes to its backend on this node, from the client's own address")
            .given(local(at, TCP))
            .packet(NodeIngress, tcp(client, node_port).syn())
            .passed_on(FlowOpened, tcp(client, pod).syn())
            .leaves([connection(TCP, [client, node_port], [client, pod]).seen(OPEN)]),
        row("a node port answers at each of the node's addresses")
            .given(local(at, TCP))
            .packet(NodeIngress, tcp(client, other_node_port).syn())
            .passed_on(FlowOpened, tcp(client, pod).syn())
            .leaves([connection(TCP, [client, other_node_port], [client, pod]).seen(OPEN)]),
        row("a frontend at the node's own address comes before a node port of that number")
            .given(two().frontend(
                node_port,
                TCP,
                Frontend {
                    external: 2,
                    ..FRONTEND
                },
            ))
            .packet(NodeIngress, tcp(client, node_port).syn())
            .passed_on(FlowOpened, tcp(client, other_pod).syn())
            .counted_for(2, 2)
            .leaves([connection(TCP, [client, node_port], [client, other_pod])
                .seen(OPEN)
                .by(2, 2)]),
        row("a frontend at an address without flags is served like any other")
            .given(local(at, TCP).address(frontend.0.into(), 0))
            .packet(NodeIngress, tcp(client, frontend).syn())
            .passed_on(FlowOpened, tcp(client, pod).syn())
            .leaves([connection(TCP, [client, frontend], [client, pod]).seen(OPEN)]),
        row("a datagram goes to its backend on this node")
            .given(local(at, UDP))
            .packet(NodeIngress, udp(client, frontend))
            .passed_on(FlowOpened, udp(client, pod))
            .leaves([connection(UDP, [client, frontend], [client, pod])]),
        row("a datagram without data, too")
            .given(local(at, UDP))
            .packet(NodeIngress, udp(client, frontend).data(0))
            .passed_on(FlowOpened, udp(client, pod).data(0))
            .leaves([connection(UDP, [client, frontend], [client, pod])]),
        row("an INIT goes to its backend on this node; the checksum follows the port")
            .given(local(at, SCTP))
            .packet(NodeIngress, sctp(client, frontend, INIT))
            .passed_on(FlowOpened, sctp(client, pod, INIT))
            .leaves([connection(SCTP, [client, frontend], [client, pod]).seen(OPEN)]),
        row("an INIT whose port stays keeps its checksum, which covers no address")
            .given(local(at, SCTP).behind(true, (at.pod_a, 80), SCTP))
            .packet(NodeIngress, sctp(client, frontend, INIT))
            .passed_on(FlowOpened, sctp(client, (at.pod_a, 80), INIT))
            .leaves([connection(SCTP, [client, frontend], [client, (at.pod_a, 80)]).seen(OPEN)]),
        row("a SYN with data, class and identification keeps them")
            .given(local(at, TCP))
            .packet(
                NodeIngress,
                tcp(client, frontend)
                    .syn()
                    .data(33)
                    .class(0xb9)
                    .id(0xbeef)
                    .dont_fragment(),
            )
            .passed_on(
                FlowOpened,
                tcp(client, pod)
                    .syn()
                    .data(33)
                    .class(0xb9)
                    .id(0xbeef)
                    .dont_fragment(),
            )
            .leaves([connection(TCP, [client, frontend], [client, pod]).seen(OPEN)]),
        row("a SYN that asks for congestion notification is a SYN")
            .given(local(at, TCP))
            .packet(NodeIngress, tcp(client, frontend).syn().congestion())
            .passed_on(FlowOpened, tcp(client, pod).syn().congestion())
            .leaves([connection(TCP, [client, frontend], [client, pod]).seen(OPEN)]),
        row("a pod's SYN to a ClusterIP goes to a backend on this node, from the pod's own address")
            .given(local_other(at, TCP))
            .packet(PodIngress, tcp(pod_client, cluster).syn())
            .passed_on(FlowOpened, tcp(pod_client, other_pod).syn())
            .leaves([connection(TCP, [pod_client, cluster], [pod_client, other_pod]).seen(OPEN)]),
        row("a pod's SYN to a ClusterIP goes to a backend elsewhere, from the pod's own address")
            .given(remote(at, TCP))
            .packet(PodIngress, tcp(pod_client, cluster).syn())
            .passed_on(FlowOpened, tcp(pod_client, far).syn())
            .leaves([connection(TCP, [pod_client, cluster], [pod_client, far]).seen(OPEN)]),
        row("a pod's datagram to a ClusterIP goes to a backend elsewhere")
            .given(remote(at, UDP))
            .packet(PodIngress, udp(pod_client, cluster))
            .passed_on(FlowOpened, udp(pod_client, far))
            .leaves([connection(UDP, [pod_client, cluster], [pod_client, far])]),
        row("a pod reaches a load balancer IP without leaving the node")
            .given(local_other(at, TCP))
            .packet(PodIngress, tcp(pod_client, frontend).syn())
            .passed_on(FlowOpened, tcp(pod_client, other_pod).syn())
            .leaves([connection(TCP, [pod_client, frontend], [pod_client, other_pod]).seen(OPEN)]),
        row("a pod reaches a node port")
            .given(local_other(at, TCP))
            .packet(PodIngress, tcp(pod_client, node_port).syn())
            .passed_on(FlowOpened, tcp(pod_client, other_pod).syn())
            .leaves([connection(TCP, [pod_client, node_port], [pod_client, other_pod]).seen(OPEN)]),
        row("a frontend with two service ports leads clients from outside to the external one")
            .given(two())
            .packet(NodeIngress, tcp(client, frontend).syn())
            .passed_on(FlowOpened, tcp(client, pod).syn())
            .leaves([connection(TCP, [client, frontend], [client, pod]).seen(OPEN)]),
        row("a frontend with two service ports leads pods to the internal one")
            .given(two())
            .packet(PodIngress, tcp(pod_client, frontend).syn())
            .passed_on(FlowOpened, tcp(pod_client, other_pod).syn())
            .counted_for(2, 2)
            .leaves([connection(TCP, [pod_client, frontend], [pod_client, other_pod])
                .seen(OPEN)
                .by(2, 2)]),
        row("a frontend with two service ports leads the node itself to the internal one")
            .given(two())
            .packet(NodeEgress, tcp(node_client, frontend).syn())
            .routed(FlowOpened, tcp(node_client, other_pod).syn())
            .counted_for(2, 2)
            .leaves(
                [connection(TCP, [node_client, frontend], [node_client, other_pod])
                    .seen(OPEN)
                    .by(2, 2)],
            ),
        row("a ClusterIP is no frontend for clients from outside")
            .given(local(at, TCP))
            .packet(NodeIngress, tcp(client, cluster).syn())
            .answered(RejectedUnknownPort, reset(cluster, client, 0, Some(0x1000_0002))),
        row("a frontend for the outside alone is none for pods, to whom its address may be a machine's")
            .given(local(at, TCP).frontend(
                frontend,
                TCP,
                Frontend {
                    internal: 0,
                    ..FRONTEND
                },
            ))
            .packet(PodIngress, tcp(pod_client, frontend).syn())
            .left_alone(PacketPassed),
        row("what the node sends to a frontend goes to a pod here, from its own address, by another device")
            .given(local(at, TCP))
            .packet(NodeEgress, tcp(node_client, cluster).syn())
            .routed(FlowOpened, tcp(node_client, pod).syn())
            .leaves([connection(TCP, [node_client, cluster], [node_client, pod]).seen(OPEN)]),
        row("what the node sends to a frontend goes to a backend elsewhere, from its own address")
            .given(remote(at, UDP))
            .packet(NodeEgress, udp(node_client, cluster))
            .routed(FlowOpened, udp(node_client, far))
            .leaves([connection(UDP, [node_client, cluster], [node_client, far])]),
        row("what is merged of segments, longer than any device takes, goes to its backend in one")
            .given(local(at, TCP).connection(connection(TCP, [client, frontend], [client, pod]).seen(OPEN)))
            .packet(NodeIngress, tcp(client, frontend).ack().data(3000))
            .segments(1448)
            .passed_on(FlowForwarded, tcp(client, pod).ack().data(3000))
            .leaves([connection(TCP, [client, frontend], [client, pod]).seen(OPEN | ESTABLISHED)]),
        row("the next packets of a flow go where the first one went")
            .given(local(at, TCP))
            .packet(NodeIngress, tcp(client, frontend).syn())
            .passed_on(FlowOpened, tcp(client, pod).syn())
            .packet(NodeIngress, tcp(client, frontend).ack())
            .passed_on(FlowForwarded, tcp(client, pod).ack())
            .packet(NodeIngress, tcp(client, frontend).ack().push().data(99))
            .passed_on(FlowForwarded, tcp(client, pod).ack().push().data(99))
            .leaves([connection(TCP, [client, frontend], [client, pod]).seen(OPEN | ESTABLISHED)]),
        row("a known flow is followed at the pod's device, too")
            .given(
                remote(at, TCP)
                    .connection(connection(TCP, [pod_client, cluster], [pod_client, far]).seen(OPEN)),
            )
            .packet(PodIngress, tcp(pod_client, cluster).ack())
            .passed_on(FlowForwarded, tcp(pod_client, far).ack())
            .leaves([connection(TCP, [pod_client, cluster], [pod_client, far]).seen(OPEN | ESTABLISHED)]),
        row("a known flow of the node's own is routed at the uplink")
            .given(
                local(at, TCP)
                    .connection(connection(TCP, [node_client, cluster], [node_client, pod]).seen(OPEN)),
            )
            .packet(NodeEgress, tcp(node_client, cluster).ack())
            .routed(FlowForwarded, tcp(node_client, pod).ack())
            .leaves([connection(TCP, [node_client, cluster], [node_client, pod]).seen(OPEN | ESTABLISHED)]),
    ]
}
