//! 802.1Q tags that the kernel leaves in the packet.

use super::prelude::*;

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        frontend,
        pod,
        far,
        masked,
        ..
    } = ends(at);
    let known = connection(TCP, [client, frontend], [client, pod]).seen(OPEN);
    let syn = tcp(client, frontend).syn();
    vec![
        row("one tag is looked behind, and stays where the packet is passed on")
            .given(local(at, TCP))
            .packet(NodeIngress, syn.clone().tag(C_TAG, 7))
            .passed_on(FlowOpened, tcp(client, pod).syn().tag(C_TAG, 7))
            .leaves([known]),
        row("two tags are looked behind, and stay")
            .given(local(at, TCP))
            .packet(NodeIngress, syn.clone().tag(S_TAG, 7).tag(C_TAG, 8))
            .passed_on(FlowOpened, tcp(client, pod).syn().tag(S_TAG, 7).tag(C_TAG, 8))
            .leaves([known]),
        row("three tags are too many: no IP is seen")
            .given(local(at, TCP))
            .packet(NodeIngress, syn.clone().tag(S_TAG, 7).tag(C_TAG, 8).tag(C_TAG, 9))
            .left_alone(PacketPassed),
        row("a reply keeps its tag on its way out")
            .given(local(at, TCP).connection(known))
            .packet(NodeEgress, tcp(pod, client).ack().tag(C_TAG, 7))
            .passed_on(FlowReplied, tcp(frontend, client).ack().tag(C_TAG, 7))
            .leaves([known.seen(OPEN | ANSWER | ESTABLISHED)]),
        row("a packet that is routed here loses its tag: the device that it leaves by adds its own")
            .given(remote(at, TCP))
            .packet(NodeIngress, syn.clone().tag(C_TAG, 7))
            .routed(FlowOpened, tcp(masked, far).syn().hops(63))
            .leaves([connection(TCP, [client, frontend], [masked, far]).seen(OPEN)]),
        row("a packet that is routed here loses both tags")
            .given(remote(at, TCP))
            .packet(NodeIngress, syn.clone().tag(S_TAG, 7).tag(C_TAG, 8))
            .routed(FlowOpened, tcp(masked, far).syn().hops(63))
            .leaves([connection(TCP, [client, frontend], [masked, far]).seen(OPEN)]),
        row("an answer goes back with the tags that it came with")
            .given(nobody(at, TCP))
            .packet(NodeIngress, syn.clone().tag(S_TAG, 7).tag(C_TAG, 8))
            .answered(
                RejectedNoBackend,
                reset(frontend, client, 0, Some(0x1000_0002))
                    .tag(S_TAG, 7)
                    .tag(C_TAG, 8),
            ),
        row("an ICMP answer goes back with its tag, and quotes without")
            .given(nobody(at, UDP))
            .packet(NodeIngress, udp(client, frontend).tag(C_TAG, 7))
            .answered(
                RejectedNoBackend,
                unreachable(frontend, client, &udp(client, frontend)).tag(C_TAG, 7),
            ),
        row("what is behind a tag and is not IP is left alone")
            .given(local(at, TCP))
            .packet(NodeIngress, syn.tag(C_TAG, 7).ether_type(0x0806))
            .left_alone(PacketPassed),
    ]
}
