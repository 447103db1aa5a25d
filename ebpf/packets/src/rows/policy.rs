//! Traffic policies and source ranges.

use lb_abi::{
    SourceKey,
    frontend_flags::{SILENT, SOURCE_RANGES},
};

use super::prelude::*;

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        stranger,
        frontend,
        cluster,
        pod_client,
        pod,
        other_pod,
        far,
        masked,
        ..
    } = ends(at);
    let silent = Frontend {
        internal: 2,
        flags: SILENT,
        ..FRONTEND
    };
    // `externalTrafficPolicy: Local`: service port 1 has this node's backends, 2 has all.
    let nothing_here = || {
        nobody(at, TCP)
            .frontend(frontend, TCP, silent)
            .service(2, &[2])
            .remote_backend(2, far, TCP)
    };
    let ranges = |given: Given| flags(given, at, TCP, SOURCE_RANGES);
    // The client's network, not the stranger's.
    let (network, bits) = if at.node.is_ipv4() {
        (at.client, 24)
    } else {
        (at.client, 64)
    };
    let range = |service, address: std::net::IpAddr, bits| {
        Entry::Source(SourceKey::range(service, address.into(), bits))
    };
    let opened = connection(TCP, [client, frontend], [client, pod]).seen(OPEN);
    // Sockets leave it to packets, and others of the same backend not.
    let moved = (at.pod_a, SNAT_PORT);
    let from_pod = connection(TCP, [pod_client, frontend], [moved, other_pod]).seen(OPEN);
    let from_stranger = connection(TCP, [stranger, frontend], [stranger, pod]).seen(OPEN);
    let syn = || tcp(client, frontend).syn();
    vec![
        row("externalTrafficPolicy Local: a backend on this node sees the client's address")
            .given(nothing_here().behind(true, pod, TCP))
            .packet(NodeIngress, syn())
            .passed_on(FlowOpened, tcp(client, pod).syn())
            .leaves([opened]),
        row("externalTrafficPolicy Local without a backend on this node: dropped, so that the client tries elsewhere")
            .given(nothing_here())
            .packet(NodeIngress, syn())
            .dropped(DroppedNoLocalBackend),
        row("externalTrafficPolicy Local without a backend on this node: pods reach the others")
            .given(nothing_here())
            .packet(PodIngress, tcp(pod_client, frontend).syn())
            .passed_on(FlowOpened, tcp(pod_client, far).syn())
            .counted_for(2, 2)
            .leaves([connection(TCP, [pod_client, frontend], [pod_client, far]).seen(OPEN).by(2, 2)]),
        row("silence is for the outside: a pod is told that there is no backend")
            .given(nothing_here().service(2, &[]))
            .packet(PodIngress, tcp(pod_client, frontend).syn())
            .answered(RejectedNoBackend, reset(frontend, pod_client, 0, Some(0x1000_0002))),
        row("established flows go on where no backend is left on this node")
            .given(nothing_here().connection(opened.seen(OPEN | ANSWER | ESTABLISHED).age(5)))
            .packet(NodeIngress, tcp(client, frontend).ack())
            .passed_on(FlowForwarded, tcp(client, pod).ack())
            .leaves([opened.seen(OPEN | ANSWER | ESTABLISHED)]),
        row("internalTrafficPolicy Local without a backend on this node: a pod is told so")
            .given(remote(at, TCP).frontend(cluster, TCP, Frontend { internal: 2, external: 0, ..FRONTEND }).service(2, &[]))
            .packet(PodIngress, tcp(pod_client, cluster).syn())
            .answered(RejectedNoBackend, reset(cluster, pod_client, 0, Some(0x1000_0002))),
        row("loadBalancerSourceRanges: a client of a range is served")
            .given(ranges(local(at, TCP)).with(range(SERVICE, network, bits)))
            .packet(NodeIngress, syn())
            .passed_on(FlowOpened, tcp(client, pod).syn())
            .leaves([opened]),
        row("loadBalancerSourceRanges: a client of no range is not")
            .given(ranges(local(at, TCP)).with(range(SERVICE, network, bits)))
            .packet(NodeIngress, tcp(stranger, frontend).syn())
            .dropped(DroppedSourceRange),
        row("loadBalancerSourceRanges: a range of one address")
            .given(ranges(local(at, TCP)).with(range(SERVICE, at.stranger, if at.node.is_ipv4() { 32 } else { 128 })))
            .packet(NodeIngress, tcp(stranger, frontend).syn())
            .passed_on(FlowOpened, tcp(stranger, pod).syn())
            .leaves([from_stranger]),
        row("loadBalancerSourceRanges: a range of all addresses")
            .given(ranges(local(at, TCP)).with(range(SERVICE, unspecified(at), 0)))
            .packet(NodeIngress, tcp(stranger, frontend).syn())
            .passed_on(FlowOpened, tcp(stranger, pod).syn())
            .leaves([from_stranger]),
        row("loadBalancerSourceRanges: without any range nobody is served")
            .given(ranges(local(at, TCP)))
            .packet(NodeIngress, syn())
            .dropped(DroppedSourceRange),
        row("loadBalancerSourceRanges: ranges of other services are not this one's")
            .given(ranges(local(at, TCP)).with(range(2, network, bits)))
            .packet(NodeIngress, syn())
            .dropped(DroppedSourceRange),
        row("loadBalancerSourceRanges hold for pods: a pod of no range is not served")
            .given(ranges(local_other(at, TCP)).with(range(SERVICE, network, bits)))
            .packet(PodIngress, tcp(pod_client, frontend).syn())
            .dropped(DroppedSourceRange),
        row("loadBalancerSourceRanges hold for pods by the external service port, whatever theirs is")
            .given(
                flags(local_other(at, TCP), at, TCP, 0)
                    .frontend(frontend, TCP, Frontend { internal: 2, flags: SOURCE_RANGES, ..FRONTEND })
                    .service(2, &[BACKEND])
                    .with(range(SERVICE, at.pod_a, bits)),
            )
            .packet(PodIngress, tcp(pod_client, frontend).syn())
            .passed_on(FlowOpened, tcp(moved, other_pod).syn())
            .counted_for(2, BACKEND)
            .leaves([from_pod.by(2, BACKEND)]),
        row("where there is no external service port, ranges are the internal one's")
            .given(
                local_other(at, TCP)
                    .frontend(frontend, TCP, Frontend { external: 0, flags: SOURCE_RANGES, ..FRONTEND })
                    .with(range(SERVICE, at.pod_a, bits)),
            )
            .packet(PodIngress, tcp(pod_client, frontend).syn())
            .passed_on(FlowOpened, tcp(moved, other_pod).syn())
            .leaves([from_pod]),
        row("ranges are looked at before backends: who is not served is not told that there is none")
            .given(ranges(nobody(at, TCP)).with(range(SERVICE, network, bits)))
            .packet(NodeIngress, tcp(stranger, frontend).syn())
            .dropped(DroppedSourceRange),
        row("a flow that was opened goes on when its client's range is taken away")
            .given(ranges(local(at, TCP)).connection(opened.age(5)))
            .packet(NodeIngress, tcp(client, frontend).ack())
            .passed_on(FlowForwarded, tcp(client, pod).ack())
            .leaves([opened.seen(OPEN | ESTABLISHED)]),
        row("ranges and SNAT: the client's own address is compared")
            .given(ranges(remote(at, TCP)).with(range(SERVICE, network, bits)))
            .packet(NodeIngress, syn())
            .routed(FlowOpened, tcp(masked, far).syn().hops(63))
            .leaves([connection(TCP, [client, frontend], [masked, far]).seen(OPEN)]),
    ]
}
