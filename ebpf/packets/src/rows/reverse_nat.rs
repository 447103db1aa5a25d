//! Replies: shown to the client as the frontend's.

use super::prelude::*;

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        frontend,
        cluster,
        pod_client,
        node_client,
        pod,
        other_pod,
        far,
        masked,
        ..
    } = ends(at);
    let outside = |protocol| connection(protocol, [client, frontend], [client, pod]).seen(OPEN);
    let between_pods = connection(TCP, [pod_client, cluster], [pod_client, other_pod]).seen(OPEN);
    let from_node = connection(TCP, [node_client, cluster], [node_client, far]).seen(OPEN);
    let remotely = connection(TCP, [client, frontend], [masked, far]).seen(OPEN);
    vec![
        row("a pod's reply to a client outside leaves as the frontend's")
            .given(local(at, TCP).connection(outside(TCP)))
            .packet(NodeEgress, tcp(pod, client).syn().ack())
            .passed_on(FlowReplied, tcp(frontend, client).syn().ack())
            .leaves([outside(TCP).seen(OPEN | ANSWER)]),
        row("a datagram that a pod replies with leaves as the frontend's")
            .given(local(at, UDP).connection(outside(UDP).seen(0)))
            .packet(NodeEgress, udp(pod, client).data(77))
            .passed_on(FlowReplied, udp(frontend, client).data(77))
            .leaves([outside(UDP).seen(ANSWER)]),
        row("an INIT ACK leaves as the frontend's; the checksum follows the port")
            .given(local(at, SCTP).connection(outside(SCTP)))
            .packet(NodeEgress, sctp(pod, client, INIT_ACK))
            .passed_on(FlowReplied, sctp(frontend, client, INIT_ACK))
            .leaves([outside(SCTP).seen(OPEN | ANSWER)]),
        row("what a pod receives from the backend of a ClusterIP is the ClusterIP's")
            .given(local_other(at, TCP).connection(between_pods))
            .packet(PodEgress, tcp(other_pod, pod_client).syn().ack())
            .passed_on(FlowReplied, tcp(cluster, pod_client).syn().ack())
            .leaves([between_pods.seen(OPEN | ANSWER)]),
        row("where the pod of the backend sends it, it is left alone: the client's device is told apart by address")
            .given(local_other(at, TCP).connection(between_pods.age(3)))
            .packet_at(PodIngress, POD_B, tcp(other_pod, pod_client).syn().ack())
            .left_alone(PacketPassed),
        row("what the node receives from the backend of a ClusterIP is the ClusterIP's")
            .given(remote(at, TCP).connection(from_node))
            .packet(NodeIngress, tcp(far, node_client).syn().ack())
            .routed(FlowReplied, tcp(cluster, node_client).syn().ack().inward())
            .leaves([from_node.seen(OPEN | ANSWER)]),
        row("what the node receives from a pod here is the ClusterIP's")
            .given(local(at, TCP).connection(connection(TCP, [node_client, cluster], [node_client, pod]).seen(OPEN)))
            .packet(PodIngress, tcp(pod, node_client).syn().ack())
            .routed(FlowReplied, tcp(cluster, node_client).syn().ack().inward())
            .leaves([connection(TCP, [node_client, cluster], [node_client, pod]).seen(OPEN | ANSWER)]),
        row("a pod's reply that leaves with its last hop leaves: the next router judges it")
            .given(local(at, TCP).connection(outside(TCP)))
            .packet(NodeEgress, tcp(pod, client).ack().hops(1))
            .passed_on(FlowReplied, tcp(frontend, client).ack().hops(1))
            .leaves([outside(TCP).seen(OPEN | ANSWER | ESTABLISHED)]),
        row("what a pod sends to a client outside by itself is left alone")
            .given(local(at, TCP).connection(outside(TCP).age(3)))
            .packet(NodeEgress, tcp((at.pod_a, 8081), client).syn())
            .left_alone(PacketPassed),
        row("what comes to a port of the node's that is not allocated is the stack's")
            .given(remote(at, TCP).connection(remotely.age(3)))
            .packet(NodeIngress, tcp(far, (at.node, SNAT_PORT + 1)).ack())
            .left_alone(PacketPassed),
        row("what comes to an allocated port from anybody but the backend is the stack's")
            .given(remote(at, TCP).connection(remotely.age(3)))
            .packet(NodeIngress, tcp((at.remote_also, 8080), masked).ack())
            .left_alone(PacketPassed),
        row("a reply without the client's entry writes it again")
            .given(local(at, TCP).connection(outside(TCP).without_forward()))
            .packet(NodeEgress, tcp(pod, client).ack())
            .passed_on(FlowReplied, tcp(frontend, client).ack())
            .leaves([outside(TCP).seen(OPEN | ANSWER | ESTABLISHED)]),
        row("a reply whose client's entry leads to another backend is of no flow, on its way out")
            .given(
                local(at, TCP)
                    .connection(connection(TCP, [client, frontend], [client, other_pod]).without_reply().age(3))
                    .connection(outside(TCP).without_forward().age(3)),
            )
            .packet(NodeEgress, tcp(pod, client).ack())
            .left_alone(PacketPassed),
        row("a reply whose client's entry leads to another backend is of no flow, at the node's address")
            .given(
                remote(at, TCP)
                    .connection(connection(TCP, [client, frontend], [masked, (at.remote_also, 8080)]).without_reply().age(3))
                    .connection(remotely.without_forward().age(3)),
            )
            .packet(NodeIngress, tcp(far, masked).ack())
            .left_alone(PacketPassed),
        row("a reply of a flow that is over leaves as it is")
            .given(local(at, TCP).connection(outside(TCP).age(61)))
            .packet(NodeEgress, tcp(pod, client).ack())
            .left_alone(PacketPassed),
        row("a reply of a flow that is over reaches a pod as it is")
            .given(local_other(at, TCP).connection(between_pods.age(61)))
            .packet(PodEgress, tcp(other_pod, pod_client).ack())
            .left_alone(PacketPassed),
        row("a reply of a flow that is over is the stack's, at the node's address")
            .given(remote(at, TCP).connection(remotely.age(61)))
            .packet(NodeIngress, tcp(far, masked).ack())
            .left_alone(PacketPassed),
    ]
}
