//! Fragments: only the first one has ports.

use lb_abi::{FragmentKey, Port};

use super::prelude::*;

/// What is noted of a datagram whose first fragment has passed.
pub(super) fn noted(protocol: u8, source: End, destination: End, id: u32, age: i32) -> Entry {
    let bytes = if source.0.is_ipv4() {
        let [high, low] = (id as u16).to_be_bytes();
        [high, low, 0, 0]
    } else {
        id.to_be_bytes()
    };
    let key = FragmentKey {
        source: source.0.into(),
        destination: destination.0.into(),
        id: bytes,
        protocol,
        pad: [0; 3],
    };
    Entry::Fragment(key, [Port::new(source.1), Port::new(destination.1)], 0, age)
}

/// What is noted of a datagram of which so many pieces have come, and not the first.
fn held(source: End, destination: End, id: u32, pieces: u32, age: i32) -> Entry {
    let Entry::Fragment(key, ..) = noted(UDP, source, destination, id, age) else {
        unreachable!("it is one");
    };
    Entry::Fragment(key, [Port::new(0); 2], pieces, age)
}

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        frontend,
        cluster,
        node_port,
        pod_client,
        node_client,
        pod,
        far,
        masked,
        ..
    } = ends(at);
    let datagram = |from, to| udp(from, to).data(40).id(0x77aa);
    let first = |packet: Packet| packet.fragment(0..24);
    let second = |packet: Packet| packet.fragment(24..40);
    let last = |packet: Packet| packet.last_fragment(40);
    let known = connection(UDP, [client, frontend], [client, pod]);
    let remotely = connection(UDP, [client, frontend], [masked, far]);
    let seen = |age| noted(UDP, client, frontend, 0x77aa, age);
    let carried = |from, to| sctp(from, to, DATA).id(0x77aa);
    let association = connection(SCTP, [client, frontend], [client, pod]).seen(OPEN | ANSWER | ESTABLISHED);
    let unchanged =
        connection(SCTP, [client, frontend], [client, (at.pod_a, 80)]).seen(OPEN | ANSWER | ESTABLISHED);
    vec![
        row("a first fragment opens a flow, and its ports are noted for the others")
            .given(local(at, UDP))
            .packet(NodeIngress, first(datagram(client, frontend)))
            .passed_on(FlowOpened, first(datagram(client, pod)))
            .leaves([known])
            .notes(seen(0)),
        row("of a later fragment only the addresses change")
            .given(local(at, UDP).connection(known).with(seen(5)))
            .packet(NodeIngress, second(datagram(client, frontend)))
            .passed_on(FlowForwarded, second(datagram(client, pod)))
            .leaves([known]),
        row("so of the last one")
            .given(local(at, UDP).connection(known).with(seen(5)))
            .packet(NodeIngress, last(datagram(client, frontend)))
            .passed_on(FlowForwarded, last(datagram(client, pod)))
            .leaves([known]),
        row("a datagram in three pieces arrives as one")
            .given(local(at, UDP))
            .packet(NodeIngress, first(datagram(client, frontend)))
            .passed_on(FlowOpened, first(datagram(client, pod)))
            .packet(NodeIngress, last(datagram(client, frontend)))
            .passed_on(FlowForwarded, last(datagram(client, pod)))
            .packet(NodeIngress, second(datagram(client, frontend)))
            .passed_on(FlowForwarded, second(datagram(client, pod)))
            .leaves([known])
            .notes(seen(0)),
        row("later fragments that come first are held until that one comes")
            .given(local(at, UDP).connection(known.age(5)))
            .packet(NodeIngress, last(datagram(client, frontend)))
            .dropped(FragmentHeld)
            .packet(NodeIngress, second(datagram(client, frontend)))
            .dropped(FragmentHeld)
            .notes(held(client, frontend, 0x77aa, 2, 0)),
        row("a later fragment that comes first is held at the node's own address, too: whose it is the first says")
            .given(local(at, UDP))
            .packet(NodeIngress, second(datagram(client, node_port)))
            .dropped(FragmentHeld)
            .notes(held(client, node_port, 0x77aa, 1, 0)),
        row("what a pod sends is held likewise")
            .given(local_other(at, UDP))
            .packet(PodIngress, second(datagram(pod_client, cluster)))
            .dropped(FragmentHeld)
            .notes(held(pod_client, cluster, 0x77aa, 1, 0)),
        row("of fragments that the node itself sends the first comes first, and nothing is held")
            .given(local(at, UDP))
            .packet(NodeEgress, second(datagram(node_client, cluster)))
            .dropped(DroppedFragment),
        row("nothing is held for nobody that ADDRESSES has")
            .given(local(at, UDP))
            .packet(NodeIngress, second(datagram(client, pod)))
            .left_alone(PacketPassed),
        row("no more than 48 fragments of a datagram are held")
            .given(local(at, UDP).with(held(client, frontend, 0x77aa, 48, 5)))
            .packet(NodeIngress, second(datagram(client, frontend)))
            .dropped(DroppedFragment),
        row("the age of what is held is that of the first that was, and after 30 seconds it is another datagram's")
            .given(local(at, UDP).with(held(client, frontend, 0x77aa, 1, 31)))
            .packet(NodeIngress, second(datagram(client, frontend)))
            .dropped(FragmentHeld)
            .notes(held(client, frontend, 0x77aa, 1, 0)),
        row("a frame of more than 2,048 bytes is not held")
            .given(local(at, UDP))
            .packet(NodeIngress, udp(client, frontend).data(2400).id(0x77aa).fragment(24..2344))
            .dropped(DroppedFragment),
        row("a datagram of the same ends, but another identification, is another one")
            .given(local(at, UDP).connection(known.age(5)).with(seen(5)))
            .packet(NodeIngress, second(datagram(client, frontend).id(0x77ab)))
            .dropped(FragmentHeld)
            .notes(held(client, frontend, 0x77ab, 1, 0)),
        row("after 30 seconds the ports of a first fragment are not taken any more")
            .given(local(at, UDP).connection(known.age(31)).with(seen(31)))
            .packet(NodeIngress, second(datagram(client, frontend)))
            .dropped(FragmentHeld)
            .notes(held(client, frontend, 0x77aa, 1, 0)),
        row("before that they are")
            .given(local(at, UDP).connection(known.age(25)).with(seen(25)))
            .packet(NodeIngress, second(datagram(client, frontend)))
            .passed_on(FlowForwarded, second(datagram(client, pod)))
            .leaves([known]),
        row("a later fragment opens no flow")
            .given(local(at, UDP).with(seen(1)))
            .packet(NodeIngress, second(datagram(client, frontend)))
            .dropped(DroppedFragment),
        row("a later fragment of a flow that is over is dropped")
            .given(local(at, UDP).connection(known.age(31)).with(seen(1)))
            .packet(NodeIngress, second(datagram(client, frontend)))
            .dropped(DroppedFragment),
        row("a later fragment for a port that is unknown is dropped where others are rejected: nothing answers it")
            .given(Given::node(at).with(seen(1)))
            .packet(NodeIngress, second(datagram(client, frontend)))
            .dropped(RejectedUnknownPort),
        row("a later fragment of no flow is the stack's, at a node port")
            .given(local(at, UDP).with(noted(UDP, client, node_port, 0x77aa, 1)))
            .packet(NodeIngress, second(datagram(client, node_port)))
            .left_alone(PacketPassed),
        row("the ports of a first fragment that is the stack's are noted, too: it is not known yet whose it is")
            .given(local(at, UDP))
            .packet(NodeIngress, first(datagram(client, (at.node, 53))))
            .left_alone(PacketPassed)
            .notes(noted(UDP, client, (at.node, 53), 0x77aa, 0)),
        row("nothing is noted of fragments that come in for nobody that ADDRESSES has")
            .given(local(at, UDP))
            .packet(NodeIngress, first(datagram(client, pod)))
            .left_alone(PacketPassed),
        row("a first fragment to a backend elsewhere gets address and port of the node")
            .given(remote(at, UDP))
            .packet(NodeIngress, first(datagram(client, frontend)))
            .routed(FlowOpened, first(datagram(masked, far)).hops(63))
            .leaves([remotely])
            .notes(seen(0)),
        row("a later fragment to a backend elsewhere gets the address of the node")
            .given(remote(at, UDP).connection(remotely).with(seen(1)))
            .packet(NodeIngress, second(datagram(client, frontend)))
            .routed(FlowForwarded, second(datagram(masked, far)).hops(63))
            .leaves([remotely]),
        row("time exceeded is not said about a later fragment")
            .given(remote(at, UDP).connection(remotely.age(5)).with(seen(1)))
            .packet(NodeIngress, second(datagram(client, frontend)).hops(1))
            .dropped(AnsweredTimeExceeded),
        row("time exceeded is said about a first fragment")
            .given(remote(at, UDP).connection(remotely.age(5)))
            .packet(NodeIngress, first(datagram(client, frontend)).hops(1))
            .answered(
                AnsweredTimeExceeded,
                answer(quoting(
                    at.node,
                    client.0,
                    Error::TIME_EXCEEDED,
                    &first(datagram(client, frontend)).hops(1),
                    8,
                )),
            )
            .notes(seen(0)),
        row("a first fragment that a pod sends opens a flow")
            .given(remote(at, UDP))
            .packet(PodIngress, first(datagram(pod_client, cluster)))
            .passed_on(FlowOpened, first(datagram(pod_client, far)))
            .leaves([connection(UDP, [pod_client, cluster], [pod_client, far])])
            .notes(noted(UDP, pod_client, cluster, 0x77aa, 0)),
        row("fragments of a reply reach a pod as the frontend's")
            .given(remote(at, UDP).connection(connection(UDP, [pod_client, cluster], [pod_client, far])))
            .packet(PodEgress, first(datagram(far, pod_client)))
            .passed_on(FlowReplied, first(datagram(cluster, pod_client)))
            .packet(PodEgress, last(datagram(far, pod_client)))
            .passed_on(FlowReplied, last(datagram(cluster, pod_client)))
            .leaves([connection(UDP, [pod_client, cluster], [pod_client, far]).seen(ANSWER)])
            .notes(noted(UDP, far, pod_client, 0x77aa, 0)),
        row("fragments of a reply from elsewhere reach the client")
            .given(remote(at, UDP).connection(remotely))
            .packet(NodeIngress, first(datagram(far, masked)))
            .routed(FlowReplied, first(datagram(frontend, client)).hops(63))
            .packet(NodeIngress, last(datagram(far, masked)))
            .routed(FlowReplied, last(datagram(frontend, client)).hops(63))
            .leaves([remotely.seen(ANSWER)])
            .notes(noted(UDP, far, masked, 0x77aa, 0)),
        row("fragments that the node sends itself are routed")
            .given(remote(at, UDP))
            .packet(NodeEgress, first(datagram(node_client, cluster)))
            .routed(FlowOpened, first(datagram(node_client, far)))
            .packet(NodeEgress, last(datagram(node_client, cluster)))
            .routed(FlowForwarded, last(datagram(node_client, far)))
            .leaves([connection(UDP, [node_client, cluster], [node_client, far])])
            .notes(noted(UDP, node_client, cluster, 0x77aa, 0)),
        row("the first fragment of a reply is shown as the frontend's")
            .given(local(at, UDP).connection(known))
            .packet(NodeEgress, first(datagram(pod, client)))
            .passed_on(FlowReplied, first(datagram(frontend, client)))
            .leaves([known.seen(ANSWER)])
            .notes(noted(UDP, pod, client, 0x77aa, 0)),
        row("a later fragment of a reply, too; it says nothing about the flow's state")
            .given(local(at, UDP).connection(known).with(noted(UDP, pod, client, 0x77aa, 1)))
            .packet(NodeEgress, second(datagram(pod, client)))
            .passed_on(FlowReplied, second(datagram(frontend, client)))
            .leaves([known]),
        row("a later fragment towards a pod, whose first one was not seen, is left alone")
            .given(local(at, UDP).connection(known.age(1)))
            .packet(PodEgress, second(datagram(pod, client)))
            .left_alone(PacketPassed),
        row("a TCP segment whose first fragment does not hold its header is malformed")
            .given(local(at, TCP))
            .packet(NodeIngress, tcp(client, frontend).syn().data(40).fragment(0..16))
            .dropped(DroppedMalformed),
        row("a first fragment with a UDP length of less than the header is malformed")
            .given(local(at, UDP))
            .packet(NodeIngress, first(datagram(client, frontend)).transport_bytes(4, &[0, 7]))
            .dropped(DroppedMalformed),
        row("of SCTP only fragments whose ports stay can be translated: the checksum covers what is elsewhere")
            .given(local(at, SCTP).behind(true, (at.pod_a, 80), SCTP).connection(unchanged))
            .packet(NodeIngress, first(carried(client, frontend)))
            .passed_on(FlowForwarded, first(carried(client, (at.pod_a, 80))))
            .leaves([unchanged])
            .notes(noted(SCTP, client, frontend, 0x77aa, 0)),
        row("SCTP fragments whose ports would change are dropped")
            .given(local(at, SCTP).connection(association))
            .packet(NodeIngress, first(carried(client, frontend)))
            .dropped(DroppedFragment)
            .leaves([association])
            .notes(noted(SCTP, client, frontend, 0x77aa, 0)),
        row("the first fragment of a ping to a service is dropped as a ping, and nothing is noted")
            .given(local(at, UDP))
            .packet(NodeIngress, echo(client.0, frontend.0).fragment(0..8))
            .dropped(DroppedIcmp),
        row("a later fragment of a ping to a service has no first one, and does not wait for it")
            .given(local(at, UDP))
            .packet(NodeIngress, echo(client.0, frontend.0).last_fragment(8))
            .dropped(DroppedFragment),
        row("a first fragment of no service is rejected with what it has: its header and eight bytes")
            .given(nobody(at, UDP))
            .packet(NodeIngress, first(datagram(client, frontend)))
            .answered(RejectedNoBackend, unreachable(frontend, client, &first(datagram(client, frontend))))
            .notes(seen(0)),
        row("ports that another processor has noted a second later are known")
            .given(local(at, UDP).connection(known).with(seen(-1)))
            .packet(NodeIngress, second(datagram(client, frontend)))
            .passed_on(FlowForwarded, second(datagram(client, pod)))
            .leaves([known]),
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
    let datagram = |from, to| udp(from, to).data(40).id(0x77aa_0001);
    vec![
        row("a packet with a fragment header that is whole is no fragment: nothing is noted (RFC 6946)")
            .given(local(at, UDP))
            .packet(NodeIngress, datagram(client, frontend).atomic())
            .passed_on(FlowOpened, datagram(client, pod).atomic())
            .leaves([connection(UDP, [client, frontend], [client, pod])]),
        row("identifications are told from each other in all 32 bits")
            .given(
                local(at, UDP)
                    .connection(connection(UDP, [client, frontend], [client, pod]).age(1))
                    .with(noted(UDP, client, frontend, 0x77aa_0001, 1)),
            )
            .packet(
                NodeIngress,
                datagram(client, frontend).id(0x77ab_0001).fragment(24..40),
            )
            .dropped(FragmentHeld)
            .notes(held(client, frontend, 0x77ab_0001, 1, 0)),
        row("a fragment behind other extension headers is one")
            .given(local(at, UDP))
            .packet(
                NodeIngress,
                datagram(client, frontend)
                    .extension(Extension::HopByHop(1))
                    .fragment(0..24),
            )
            .passed_on(
                FlowOpened,
                datagram(client, pod)
                    .extension(Extension::HopByHop(1))
                    .fragment(0..24),
            )
            .leaves([connection(UDP, [client, frontend], [client, pod])])
            .notes(noted(UDP, client, frontend, 0x77aa_0001, 0)),
    ]
}
