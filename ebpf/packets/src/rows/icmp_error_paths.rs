//! Where ICMP errors about flows go: as the flow's packets in their direction do.

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
    let router = at.gateway;
    let unreachable = Error::PORT_UNREACHABLE;
    let too_big = Error::too_big(SMALL_MTU);
    let from_node = |backend| connection(UDP, [node_client, cluster], [node_client, backend]).age(7);
    let hairpin = connection(UDP, [pod_client, cluster], [masked, pod]).age(7);
    let outside = connection(UDP, [client, frontend], [client, pod]).age(7);
    let narrow = (at.narrow, 40_000);
    let to_narrow = connection(UDP, [narrow, frontend], [masked, far]).age(7);
    let apart = connection(UDP, [pod_client, cluster], [(at.pod_a, SNAT_PORT), other_pod]).age(7);
    // As long as a way of a larger MTU lets it be.
    let long = SMALL_MTU as usize;
    vec![
        row("what the node is told about its own request to a backend elsewhere is about the frontend")
            .given(remote(at, UDP).connection(from_node(far)))
            .packet(
                NodeIngress,
                quoting(router, at.node, too_big, &udp(node_client, far), 8),
            )
            .passed_on(
                FlowRelated,
                quoting(router, at.node, too_big, &udp(node_client, cluster), 8),
            ),
        row("what a pod here tells the node is about the frontend, and is the frontend's")
            .given(local(at, UDP).connection(from_node(pod)))
            .packet(
                PodIngress,
                quoting(pod.0, at.node, unreachable, &udp(node_client, pod), 8),
            )
            .routed(
                FlowRelated,
                quoting(cluster.0, at.node, unreachable, &udp(node_client, cluster), 8).inward(),
            ),
        row("what the node tells a frontend about a reply is routed to the backend elsewhere")
            .given(remote(at, UDP).connection(from_node(far)))
            .packet(
                NodeEgress,
                quoting(at.node, cluster.0, unreachable, &udp(cluster, node_client), 8),
            )
            .routed(
                FlowRelated,
                quoting(at.node, far.0, unreachable, &udp(far, node_client), 8),
            )
            .leaves([]),
        row("what the node tells a frontend about a reply is routed to the backend here")
            .given(local(at, UDP).connection(from_node(pod)))
            .packet(
                NodeEgress,
                quoting(at.node, cluster.0, unreachable, &udp(cluster, node_client), 8),
            )
            .routed(
                FlowRelated,
                quoting(at.node, pod.0, unreachable, &udp(pod, node_client), 8),
            )
            .leaves([]),
        row("what a pod that is its own backend tells the node is told the pod, by the frontend")
            .given(local(at, UDP).connection(hairpin))
            .packet(
                PodIngress,
                quoting(pod.0, at.node, unreachable, &udp(masked, pod), 8),
            )
            .routed(
                FlowRelated,
                quoting(cluster.0, pod_client.0, unreachable, &udp(pod_client, cluster), 8).hops(63),
            ),
        row("what a pod that is its own backend tells the frontend is told the pod, by the node")
            .given(local(at, UDP).connection(hairpin))
            .packet(
                PodIngress,
                quoting(pod_client.0, cluster.0, unreachable, &udp(cluster, pod_client), 8),
            )
            .routed(
                FlowRelated,
                quoting(at.node, pod.0, unreachable, &udp(pod, masked), 8).hops(63),
            )
            .leaves([]),
        row("what a backend tells a client whose port was changed alone is about the client's own port")
            .given(local_other(at, UDP).connection(apart))
            .packet(
                PodEgress,
                quoting(
                    other_pod.0,
                    at.pod_a,
                    unreachable,
                    &udp((at.pod_a, SNAT_PORT), other_pod),
                    8,
                ),
            )
            .passed_on(
                FlowRelated,
                quoting(cluster.0, at.pod_a, unreachable, &udp(pod_client, cluster), 8),
            ),
        row("a quoted UDP checksum that becomes 0 is 0xffff, as it was sent")
            .given(local(at, UDP).connection(outside))
            .packet(
                NodeEgress,
                quoting(
                    pod.0,
                    client.0,
                    unreachable,
                    &udp(client, frontend).zero_sum().to(pod),
                    8,
                ),
            )
            .passed_on(
                FlowRelated,
                quoting(
                    frontend.0,
                    client.0,
                    unreachable,
                    &udp(client, frontend).zero_sum(),
                    8,
                ),
            ),
        row("an error with a wrong checksum is as wrong afterwards, though what it quotes is right")
            .given(local(at, UDP).connection(outside))
            .packet(
                NodeEgress,
                quoting(pod.0, client.0, unreachable, &udp(client, pod), 8).checksum_off_by(0x0204),
            )
            .passed_on(
                FlowRelated,
                quoting(frontend.0, client.0, unreachable, &udp(client, frontend), 8).checksum_off_by(0x0204),
            )
            .still_wrong(),
        row("an error towards a pod keeps its hops, be it one")
            .given(
                remote(at, UDP).connection(connection(UDP, [pod_client, cluster], [pod_client, far]).age(7)),
            )
            .packet(
                PodEgress,
                quoting(router, pod_client.0, too_big, &udp(pod_client, far), 8).hops(1),
            )
            .passed_on(
                FlowRelated,
                quoting(router, pod_client.0, too_big, &udp(pod_client, cluster), 8).hops(1),
            ),
        row("an error about a pod's request that is still on its way to the pod is left alone")
            .given(
                remote(at, UDP).connection(connection(UDP, [pod_client, cluster], [pod_client, far]).age(7)),
            )
            .packet(
                NodeIngress,
                quoting(router, pod_client.0, too_big, &udp(pod_client, far), 8),
            )
            .left_alone(PacketPassed),
        row("an error about a reply that a pod here has sent is left alone where it leaves another pod")
            .given(local(at, UDP).connection(outside))
            .packet_at(
                PodIngress,
                POD_B,
                quoting(other_pod.0, client.0, unreachable, &udp(client, other_pod), 8),
            )
            .left_alone(PacketPassed),
        row("an error that is too long for its way is dropped: nothing is sent about errors")
            .given(remote(at, UDP).connection(to_narrow))
            .packet(
                NodeIngress,
                quoting(router, at.node, too_big, &udp(masked, far).data(long), long).dont_fragment(),
            )
            .dropped(AnsweredTooBig),
        row("an error without a way is dropped")
            .given(
                remote(at, UDP)
                    .connection(connection(UDP, [(at.nowhere, 40_000), frontend], [masked, far]).age(7)),
            )
            .packet(
                NodeIngress,
                quoting(router, at.node, too_big, &udp(masked, far), 8),
            )
            .dropped(DroppedRoute),
    ]
}
