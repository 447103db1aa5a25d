//! Answers that a client refuses: its port unreachable about a datagram ends the flow.

use super::prelude::*;

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        frontend,
        cluster,
        pod_client,
        pod,
        far,
        ..
    } = ends(at);
    let router = at.gateway;
    let locally = |protocol| connection(protocol, [client, frontend], [client, pod]).age(7);
    let datagrams_of_pod = connection(UDP, [pod_client, cluster], [pod_client, far])
        .seen(ANSWER)
        .age(7);
    vec![
        row("port unreachable that a client says about a datagram ends the flow: its answers are then the backend's own")
            .given(remote(at, UDP).connection(datagrams_of_pod))
            .packet(PodEgress, udp(far, pod_client))
            .passed_on(FlowReplied, udp(cluster, pod_client))
            .packet(
                PodIngress,
                quoting(
                    pod_client.0,
                    cluster.0,
                    Error::PORT_UNREACHABLE,
                    &udp(cluster, pod_client),
                    8,
                ),
            )
            .passed_on(
                FlowRelated,
                quoting(
                    pod_client.0,
                    far.0,
                    Error::PORT_UNREACHABLE,
                    &udp(far, pod_client),
                    8,
                ),
            )
            .packet(PodEgress, udp(far, pod_client))
            .left_alone(PacketPassed)
            .leaves([]),
        row("an answer that a client refuses otherwise does not end the flow")
            .given(remote(at, UDP).connection(datagrams_of_pod))
            .packet(
                PodIngress,
                quoting(
                    pod_client.0,
                    cluster.0,
                    Error::TIME_EXCEEDED,
                    &udp(cluster, pod_client),
                    8,
                ),
            )
            .passed_on(
                FlowRelated,
                quoting(
                    pod_client.0,
                    far.0,
                    Error::TIME_EXCEEDED,
                    &udp(far, pod_client),
                    8,
                ),
            )
            .leaves([datagrams_of_pod]),
        row("port unreachable that another than the client says does not end the flow")
            .given(local(at, UDP).connection(locally(UDP)))
            .packet(
                NodeIngress,
                quoting(
                    router,
                    frontend.0,
                    Error::PORT_UNREACHABLE,
                    &udp(frontend, client),
                    8,
                ),
            )
            .passed_on(
                FlowRelated,
                quoting(router, pod.0, Error::PORT_UNREACHABLE, &udp(pod, client), 8),
            )
            .leaves([locally(UDP)]),
        row("port unreachable that a client says about a segment does not end the flow: RST does that")
            .given(local(at, TCP).connection(locally(TCP)))
            .packet(
                NodeIngress,
                quoting(
                    client.0,
                    frontend.0,
                    Error::PORT_UNREACHABLE,
                    &tcp(frontend, client).ack(),
                    8,
                ),
            )
            .passed_on(
                FlowRelated,
                quoting(client.0, pod.0, Error::PORT_UNREACHABLE, &tcp(pod, client).ack(), 8),
            )
            .leaves([locally(TCP)]),
    ]
}
