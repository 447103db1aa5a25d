//! TTL and hop limit, MTU, and routes: of packets that the program routes itself.

use super::prelude::*;

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        frontend,
        cluster,
        node_client,
        pod,
        far,
        masked,
        ..
    } = ends(at);
    let narrow = (at.narrow, 8080);
    let header = if at.node.is_ipv4() { 20 } else { 40 };
    // Bytes of data in a segment that has so many from the IP header on.
    let fits = |length: u32| length as usize - header - 20;
    let remotely = connection(TCP, [client, frontend], [masked, far]).seen(OPEN | ANSWER | ESTABLISHED);
    let narrowly = connection(TCP, [client, frontend], [masked, narrow]).seen(OPEN | ANSWER | ESTABLISHED);
    let exceeded = |packet: &Packet, to: End| answer(quoting(at.node, to.0, Error::TIME_EXCEEDED, packet, 8));
    let known = || remote(at, TCP).behind(false, narrow, TCP).connection(narrowly);
    let segment = |length| tcp(client, frontend).ack().data(fits(length));
    let nowhere = |address| remote(at, TCP).behind(false, (address, 8080), TCP);
    let stored = |address| connection(TCP, [client, frontend], [masked, (address, 8080)]).seen(OPEN);
    let mut nameless = remote(at, TCP).connection(remotely.age(5));
    nameless.config.node_v4 = Config::NONE.node_v4;
    nameless.config.node_v6 = Config::NONE.node_v6;
    let last = |packet: Packet| packet.hops(1);
    vec![
        row("a packet that is routed here has one hop less")
            .given(remote(at, TCP))
            .packet(NodeIngress, tcp(client, frontend).syn().hops(2))
            .routed(FlowOpened, tcp(masked, far).syn().hops(1))
            .leaves([connection(TCP, [client, frontend], [masked, far]).seen(OPEN)]),
        row("that answer comes from the address of the node's that was asked, if it was one")
            .given(remote(at, TCP))
            .packet(NodeIngress, last(tcp(client, (at.node_also, NODE_PORT)).syn()))
            .answered(
                AnsweredTimeExceeded,
                answer(quoting(
                    at.node_also,
                    client.0,
                    Error::TIME_EXCEEDED,
                    &last(tcp(client, (at.node_also, NODE_PORT)).syn()),
                    8,
                )),
            ),
        row("a packet with its last hop is answered by the node, as it came; nothing is stored")
            .given(remote(at, TCP))
            .packet(NodeIngress, last(tcp(client, frontend).syn()))
            .answered(
                AnsweredTimeExceeded,
                exceeded(&last(tcp(client, frontend).syn()), client),
            ),
        row("so is one that should not have been sent at all")
            .given(remote(at, TCP))
            .packet(NodeIngress, tcp(client, frontend).syn().hops(0))
            .answered(
                AnsweredTimeExceeded,
                exceeded(&tcp(client, frontend).syn().hops(0), client),
            ),
        row("a datagram with its last hop is answered by the node")
            .given(remote(at, UDP))
            .packet(NodeIngress, last(udp(client, frontend)))
            .answered(
                AnsweredTimeExceeded,
                exceeded(&last(udp(client, frontend)), client),
            ),
        row("a packet of a flow with its last hop is answered, and renews nothing")
            .given(remote(at, TCP).connection(remotely.age(5)))
            .packet(NodeIngress, last(tcp(client, frontend).ack()))
            .answered(
                AnsweredTimeExceeded,
                exceeded(&last(tcp(client, frontend).ack()), client),
            ),
        row("a reply with its last hop is answered to the backend, and renews nothing")
            .given(remote(at, TCP).connection(remotely.age(5)))
            .packet(NodeIngress, last(tcp(far, masked).ack()))
            .answered(AnsweredTimeExceeded, exceeded(&last(tcp(far, masked).ack()), far)),
        row("a node without an address answers from that which was asked for")
            .given(nameless)
            .packet(NodeIngress, last(tcp(client, frontend).ack()))
            .answered(
                AnsweredTimeExceeded,
                answer(quoting(
                    frontend.0,
                    client.0,
                    Error::TIME_EXCEEDED,
                    &last(tcp(client, frontend).ack()),
                    8,
                )),
            ),
        row("hops of what is passed on to the stack are the stack's matter")
            .given(local(at, TCP))
            .packet(NodeIngress, last(tcp(client, frontend).syn()))
            .passed_on(FlowOpened, last(tcp(client, pod).syn()))
            .leaves([connection(TCP, [client, frontend], [client, pod]).seen(OPEN)]),
        row("what the node sends itself keeps its hops, be it one")
            .given(remote(at, TCP))
            .packet(NodeEgress, last(tcp(node_client, cluster).syn()))
            .routed(FlowOpened, last(tcp(node_client, far).syn()))
            .leaves([connection(TCP, [node_client, cluster], [node_client, far]).seen(OPEN)]),
        row("time exceeded is not sent to a link-layer multicast")
            .given(remote(at, TCP))
            .packet(
                NodeIngress,
                last(tcp(client, frontend).syn()).link([1, 0, 0x5e, 0, 0, 1], crate::test_node::PEER_LINK),
            )
            .dropped(AnsweredTimeExceeded),
        row("a packet that is as long as the route takes is routed")
            .given(known())
            .packet(NodeIngress, segment(SMALL_MTU).dont_fragment())
            .routed(
                FlowForwarded,
                tcp(masked, narrow)
                    .ack()
                    .data(fits(SMALL_MTU))
                    .dont_fragment()
                    .hops(63),
            )
            .leaves([narrowly]),
        row("what was merged of segments that are longer is answered as they are, each of which would be lost")
            .given(known())
            .packet(NodeIngress, segment(SMALL_MTU + 900).dont_fragment())
            .segments(SMALL_MTU - header as u32 - 19)
            .answered(
                AnsweredTooBig,
                answer(quoting(
                    at.node,
                    client.0,
                    Error::too_big(SMALL_MTU),
                    &segment(SMALL_MTU + 900).dont_fragment(),
                    8,
                )),
            ),
        row("what was merged of segments that are as long as the route takes is routed")
            .given(known())
            .packet(NodeIngress, segment(SMALL_MTU + 900).dont_fragment())
            .segments(SMALL_MTU - header as u32 - 20)
            .routed(
                FlowForwarded,
                tcp(masked, narrow)
                    .ack()
                    .data(fits(SMALL_MTU + 900))
                    .dont_fragment()
                    .hops(63),
            )
            .leaves([narrowly]),
        row("a packet that is longer, but will be cut by the device, is routed")
            .given(known())
            .packet(NodeIngress, segment(SMALL_MTU + 900).dont_fragment())
            .segments(1000)
            .routed(
                FlowForwarded,
                tcp(masked, narrow)
                    .ack()
                    .data(fits(SMALL_MTU + 900))
                    .dont_fragment()
                    .hops(63),
            )
            .leaves([narrowly]),
        row("what the node sends itself is answered, too, where it is too long")
            .given(remote(at, TCP).behind(false, narrow, TCP).connection(
                connection(TCP, [node_client, cluster], [node_client, narrow]).seen(OPEN | ANSWER | ESTABLISHED),
            ))
            .packet(
                NodeEgress,
                tcp(node_client, cluster)
                    .ack()
                    .data(fits(SMALL_MTU + 1))
                    .dont_fragment(),
            )
            .answered(
                AnsweredTooBig,
                answer(quoting(
                    at.node,
                    node_client.0,
                    Error::too_big(SMALL_MTU),
                    &tcp(node_client, cluster)
                        .ack()
                        .data(fits(SMALL_MTU + 1))
                        .dont_fragment(),
                    8,
                )),
            )
            .leaves([connection(TCP, [node_client, cluster], [node_client, narrow]).seen(OPEN | ANSWER | ESTABLISHED)]),
        row("the first packet of a flow is answered, too, where it is too long; the flow stays, and is over in time")
            .given(remote(at, TCP).behind(false, narrow, TCP))
            .packet(NodeIngress, tcp(client, frontend).syn().data(fits(SMALL_MTU + 1)).dont_fragment())
            .answered(
                AnsweredTooBig,
                answer(quoting(
                    at.node,
                    client.0,
                    Error::too_big(SMALL_MTU),
                    &tcp(client, frontend).syn().data(fits(SMALL_MTU + 1)).dont_fragment(),
                    8,
                )),
            )
            .leaves([narrowly.seen(OPEN)]),
        row("too big is not said to a link-layer broadcast")
            .given(known())
            .packet(
                NodeIngress,
                segment(SMALL_MTU + 1).dont_fragment().link([0xff; 6], crate::test_node::PEER_LINK),
            )
            .dropped(AnsweredTooBig)
            .leaves([narrowly]),
        row("no route to the backend: dropped; the flow stays, and is over in time")
            .given(nowhere(at.nowhere))
            .packet(NodeIngress, tcp(client, frontend).syn())
            .dropped(DroppedRoute)
            .leaves([stored(at.nowhere)]),
        row("an unreachable route to the backend: dropped")
            .given(nowhere(at.unreachable))
            .packet(NodeIngress, tcp(client, frontend).syn())
            .dropped(DroppedRoute)
            .leaves([stored(at.unreachable)]),
        row("a device that does not forward: dropped")
            .given(remote(at, TCP))
            .packet_at(NodeIngress, CLOSED, tcp(client, frontend).syn())
            .dropped(DroppedRoute)
            .leaves([connection(TCP, [client, frontend], [masked, far]).seen(OPEN)]),
        row("no route for what the node sends itself: dropped")
            .given(nowhere(at.unreachable))
            .packet(NodeEgress, tcp(node_client, cluster).syn())
            .dropped(DroppedRoute)
            .leaves([
                connection(TCP, [node_client, cluster], [node_client, (at.unreachable, 8080)]).seen(OPEN),
            ]),
        row("no route back to the client: dropped")
            .given(remote(at, TCP).connection(
                connection(TCP, [(at.nowhere, 40_000), frontend], [masked, far]).seen(OPEN | ANSWER | ESTABLISHED),
            ))
            .packet(NodeIngress, tcp(far, masked).ack())
            .dropped(DroppedRoute)
            .leaves([connection(TCP, [(at.nowhere, 40_000), frontend], [masked, far]).seen(OPEN | ANSWER | ESTABLISHED)]),
        row("a route to a pod of this node, whose neighbour is known")
            .given(
                local(at, TCP)
                    .connection(connection(TCP, [node_client, cluster], [node_client, pod]).seen(OPEN)),
            )
            .packet(NodeEgress, tcp(node_client, cluster).ack())
            .routed(FlowForwarded, tcp(node_client, pod).ack())
            .leaves([connection(TCP, [node_client, cluster], [node_client, pod]).seen(OPEN | ESTABLISHED)]),
    ]
}

/// Packets larger than the route's MTU: a row each of v4 and v6.
fn too_big(at: &Addresses, says: &str, mark: &dyn Fn(Packet) -> Packet) -> Vec<Row> {
    let Ends {
        client,
        frontend,
        masked,
        ..
    } = ends(at);
    let narrow = (at.narrow, 8080);
    let header = if at.node.is_ipv4() { 20 } else { 40 };
    let long = mark(
        tcp(client, frontend)
            .ack()
            .data(SMALL_MTU as usize + 1 - header - 20),
    );
    let reply = mark(
        tcp(narrow, masked)
            .ack()
            .data(SMALL_MTU as usize + 1 - header - 20),
    );
    let flow = connection(TCP, [client, frontend], [masked, narrow]).seen(OPEN | ANSWER | ESTABLISHED);
    let back =
        connection(TCP, [(at.narrow, 40_000), frontend], [masked, narrow]).seen(OPEN | ANSWER | ESTABLISHED);
    let error =
        |packet: &Packet, to: End| answer(quoting(at.node, to.0, Error::too_big(SMALL_MTU), packet, 8));
    vec![
        row(format!(
            "{says} is answered with the MTU of the way to the backend"
        ))
        .given(remote(at, TCP).behind(false, narrow, TCP).connection(flow))
        .packet(NodeIngress, long.clone())
        .answered(AnsweredTooBig, error(&long, client))
        .leaves([flow]),
        row(format!(
            "{says} is answered with the MTU of the way to the client"
        ))
        .given(remote(at, TCP).behind(false, narrow, TCP).connection(back))
        .packet(NodeIngress, reply.clone())
        .answered(AnsweredTooBig, error(&reply, narrow))
        .leaves([back]),
    ]
}

pub(super) fn v4() -> Vec<Row> {
    let at = &crate::test_node::V4;
    let Ends {
        client,
        frontend,
        masked,
        ..
    } = ends(at);
    let narrow = (at.narrow, 8080);
    let flow = connection(TCP, [client, frontend], [masked, narrow]).seen(OPEN | ANSWER | ESTABLISHED);
    let mut rows = too_big(at, "a packet with DF that is too long", &Packet::dont_fragment);
    rows.push(
        row("a packet without DF that is too long is dropped: it would have to be cut")
            .given(remote(at, TCP).behind(false, narrow, TCP).connection(flow))
            .packet(
                NodeIngress,
                tcp(client, frontend).ack().data(SMALL_MTU as usize + 1 - 40),
            )
            .dropped(DroppedTooBig)
            .leaves([flow]),
    );
    rows
}

pub(super) fn v6() -> Vec<Row> {
    too_big(
        &crate::test_node::V6,
        "a packet that is too long",
        &std::convert::identity,
    )
}
