//! Ports for SNAT, and for clients of the node: one that is in use is never given out, and a connection without one is refused.

use super::prelude::*;

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    [snat(at), of_the_node(at)].concat()
}

/// Clients of the node, whose address stays: a socket of the node may be connected to the backend from the same port, as a socket
/// program has replaced the address of another frontend.
fn of_the_node(at: &Addresses) -> Vec<Row> {
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
    let also = (at.remote_also, 8080);
    let itself = (at.node_also, NODE_PORT);
    let kept = |protocol| connection(protocol, [node_client, cluster], [node_client, far]);
    let moved = |protocol| connection(protocol, [node_client, cluster], [masked, far]);
    let taken = |protocol| remote(at, protocol).connected(protocol, node_client, far);
    vec![
        row("a client of the node gets another port where a socket of the node is connected to the backend from its own")
            .given(taken(TCP))
            .packet(NodeEgress, tcp(node_client, cluster).syn())
            .routed(FlowOpened, tcp(masked, far).syn())
            .packet(NodeIngress, tcp(far, masked).syn().ack())
            .routed(FlowReplied, tcp(cluster, node_client).syn().ack().inward())
            .leaves([moved(TCP).seen(OPEN | ANSWER)]),
        row("what that socket sends and receives stays its own")
            .given(taken(TCP).connection(moved(TCP).seen(OPEN).age(5)))
            .packet(NodeEgress, tcp(node_client, far).ack())
            .left_alone(PacketPassed)
            .packet(NodeIngress, tcp(far, node_client).ack())
            .left_alone(PacketPassed)
            .leaves([moved(TCP).seen(OPEN).age(5)]),
        row("so does a client of the node whose backend is a pod of this node")
            .given(local(at, TCP).connected(TCP, node_client, pod))
            .packet(NodeEgress, tcp(node_client, cluster).syn())
            .routed(FlowOpened, tcp(masked, pod).syn())
            .leaves([connection(TCP, [node_client, cluster], [masked, pod]).seen(OPEN)]),
        row("where a UDP socket is connected to the backend from that port, too")
            .given(taken(UDP))
            .packet(NodeEgress, udp(node_client, cluster))
            .routed(FlowOpened, udp(masked, far))
            .leaves([moved(UDP)]),
        row("the client's own UDP socket, which is not connected, is no other one: it keeps its port")
            .given(remote(at, UDP).held(UDP, node_client))
            .packet(NodeEgress, udp(node_client, cluster))
            .routed(FlowOpened, udp(node_client, far))
            .leaves([kept(UDP)]),
        row("nor is a socket that listens at its port")
            .given(remote(at, TCP).held(TCP, node_client))
            .packet(NodeEgress, tcp(node_client, cluster).syn())
            .routed(FlowOpened, tcp(node_client, far).syn())
            .leaves([kept(TCP).seen(OPEN)]),
        row("nor one that is connected to another backend, or by another protocol")
            .given(remote(at, TCP).connected(TCP, node_client, also).connected(UDP, node_client, far))
            .packet(NodeEgress, tcp(node_client, cluster).syn())
            .routed(FlowOpened, tcp(node_client, far).syn())
            .leaves([kept(TCP).seen(OPEN)]),
        row("where the backend is what the client asks for, the socket with that tuple is the client's own")
            .given(
                local(at, TCP)
                    .behind(true, itself, TCP)
                    .connected(TCP, node_client, itself),
            )
            .packet(NodeEgress, tcp(node_client, itself).syn())
            .routed(FlowOpened, tcp(node_client, itself).syn().inward())
            .leaves([connection(TCP, [node_client, itself], [node_client, itself]).seen(OPEN)]),
        row("where a socket has its tuple and no port is free, a packet is dropped")
            .given(taken(TCP).connected(TCP, masked, far))
            .packet(NodeEgress, tcp(node_client, cluster).syn())
            .dropped(DroppedPortsExhausted),
        row("where its socket leaves the frontend to packets, it does not keep that port after all")
            .given(
                flags(taken(TCP), at, TCP, frontend_flags::SOURCE_RANGES)
                    .with(Entry::Source(lb_abi::SourceKey::client(SERVICE, at.node.into())))
                    .connected(TCP, masked, far),
            )
            .packet(NodeEgress, tcp(node_client, frontend).syn())
            .dropped(DroppedPortsExhausted),
        row("a client outside keeps its port, which no socket of the node can have at its address")
            .given(local(at, TCP).connected(TCP, (at.node, client.1), pod))
            .packet(NodeIngress, tcp(client, frontend).syn())
            .passed_on(FlowOpened, tcp(client, pod).syn())
            .leaves([connection(TCP, [client, frontend], [client, pod]).seen(OPEN)]),
    ]
}

fn snat(at: &Addresses) -> Vec<Row> {
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
    let port = |port| (at.node, port);
    let taken = |protocol, at_port| {
        connection(protocol, [stranger, frontend], [port(at_port), far])
            .seen(OPEN)
            .age(5)
    };
    // Clients of their own, so that each has an entry of its own.
    let by = |number: u16, at_port| {
        connection(
            TCP,
            [(at.stranger, 50_000 + number), frontend],
            [port(at_port), far],
        )
        .seen(OPEN)
        .age(5)
    };
    let closed = taken(TCP, SNAT_PORT).seen(OPEN | ANSWER | ESTABLISHED | CLIENT_FIN | BACKEND_FIN);
    let reset = taken(TCP, SNAT_PORT).seen(OPEN | ANSWER | RESET);
    let opened = |at_port| connection(TCP, [client, frontend], [port(at_port), far]).seen(OPEN);
    let syn = || tcp(client, frontend).syn();
    let also = (at.remote_also, 8080);
    let cluster_also = (at.cluster_ip_also, 80);
    let internal = Frontend {
        external: 0,
        ..FRONTEND
    };
    let first = connection(TCP, [pod_client, cluster], [pod_client, other_pod]).seen(OPEN);
    let second = connection(
        TCP,
        [pod_client, cluster_also],
        [(at.pod_a, SNAT_PORT), other_pod],
    )
    .seen(OPEN);
    let two_frontends = || local_other(at, TCP).frontend(cluster_also, TCP, internal);
    vec![
        row("ports in use are passed over until one is free")
            .given(
                remote(at, TCP)
                    .ports(62_000, 62_003)
                    .connection(by(0, 62_000))
                    .connection(by(1, 62_001))
                    .connection(by(3, 62_003)),
            )
            .packet(NodeIngress, syn())
            .routed(FlowOpened, tcp(port(62_002), far).syn().hops(63))
            .leaves([by(0, 62_000), by(1, 62_001), by(3, 62_003), opened(62_002)]),
        row("where all ports are in use a packet is dropped, and that is counted")
            .given(remote(at, TCP).connection(taken(TCP, SNAT_PORT)))
            .packet(NodeIngress, syn())
            .dropped(DroppedPortsExhausted),
        row("where all of several ports are in use, too")
            .given(
                remote(at, TCP)
                    .ports(62_000, 62_003)
                    .connection(by(0, 62_000))
                    .connection(by(1, 62_001))
                    .connection(by(2, 62_002))
                    .connection(by(3, 62_003)),
            )
            .packet(NodeIngress, syn())
            .dropped(DroppedPortsExhausted),
        row("ports that the kernel gives to sockets come last")
            .given(remote(at, TCP).ports(62_000, 62_002).local_ports(62_000, 62_001))
            .packet(NodeIngress, syn())
            .routed(FlowOpened, tcp(port(62_002), far).syn().hops(63))
            .leaves([opened(62_002)]),
        row("and are taken where there is no other")
            .given(
                remote(at, TCP)
                    .ports(62_000, 62_001)
                    .local_ports(62_001, 65_000)
                    .connection(by(0, 62_000)),
            )
            .packet(NodeIngress, syn())
            .routed(FlowOpened, tcp(port(62_001), far).syn().hops(63))
            .leaves([by(0, 62_000), opened(62_001)]),
        row("the port of a connection that both have closed is taken over where there is no other")
            .given(remote(at, TCP).connection(closed.age(2)))
            .packet(NodeIngress, syn())
            .routed(FlowOpened, tcp(masked, far).syn().hops(63))
            .reusing()
            .leaves([closed.age(2).without_reply(), opened(SNAT_PORT)]),
        row("of a connection that was reset, too")
            .given(remote(at, TCP).connection(reset.age(2)))
            .packet(NodeIngress, syn())
            .routed(FlowOpened, tcp(masked, far).syn().hops(63))
            .reusing()
            .leaves([reset.age(2).without_reply(), opened(SNAT_PORT)]),
        row("not while its last packets may be on their way")
            .given(remote(at, TCP).connection(closed.age(-1)))
            .packet(NodeIngress, syn())
            .dropped(DroppedPortsExhausted),
        row("nor of one that one side has closed")
            .given(remote(at, TCP).connection(taken(TCP, SNAT_PORT).seen(OPEN | ANSWER | ESTABLISHED | CLIENT_FIN)))
            .packet(NodeIngress, syn())
            .dropped(DroppedPortsExhausted),
        row("one that is nobody's is taken before")
            .given(
                remote(at, TCP)
                    .ports(62_000, 62_003)
                    .connection(closed.age(60))
                    .connection(by(1, 62_001))
                    .connection(by(2, 62_002)),
            )
            .packet(NodeIngress, syn())
            .routed(FlowOpened, tcp(port(62_003), far).syn().hops(63))
            .leaves([closed.age(60), by(1, 62_001), by(2, 62_002), opened(62_003)]),
        row("a port in use with one backend is free for another")
            .given(remote(at, TCP).connection(taken(TCP, SNAT_PORT).by(1, 2)).behind(false, also, TCP))
            .packet(NodeIngress, syn())
            .routed(FlowOpened, tcp(masked, also).syn().hops(63))
            .leaves([
                taken(TCP, SNAT_PORT).by(1, 2),
                connection(TCP, [client, frontend], [masked, also]).seen(OPEN),
            ]),
        row("a port in use by one protocol is free for another")
            .given(remote(at, TCP).connection(taken(UDP, SNAT_PORT)))
            .packet(NodeIngress, syn())
            .routed(FlowOpened, tcp(masked, far).syn().hops(63))
            .leaves([taken(UDP, SNAT_PORT), opened(SNAT_PORT)]),
        row("the port of a flow that is over is taken over")
            .given(remote(at, TCP).connection(taken(TCP, SNAT_PORT).age(61)))
            .packet(NodeIngress, syn())
            .routed(FlowOpened, tcp(masked, far).syn().hops(63))
            .leaves([taken(TCP, SNAT_PORT).age(61).without_reply(), opened(SNAT_PORT)]),
        row("the client whose port was taken over since begins anew")
            .given(
                remote(at, TCP)
                    .ports(62_001, 62_001)
                    .connection(taken(TCP, SNAT_PORT).age(5).without_reply())
                    .connection(opened(SNAT_PORT).age(5)),
            )
            .packet(NodeIngress, tcp(stranger, frontend).syn())
            .routed(FlowOpened, tcp(port(62_001), far).syn().hops(63))
            .leaves([
                opened(SNAT_PORT).age(5),
                connection(TCP, [stranger, frontend], [port(62_001), far]).seen(OPEN),
            ]),
        row("a port whose client's entry is gone is free")
            .given(remote(at, TCP).connection(taken(TCP, SNAT_PORT).without_forward()))
            .packet(NodeIngress, syn())
            .routed(FlowOpened, tcp(masked, far).syn().hops(63))
            .leaves([opened(SNAT_PORT)]),
        row("a port that a socket of the node listens at is not given out")
            .given(remote(at, TCP).held(TCP, masked))
            .packet(NodeIngress, syn())
            .dropped(DroppedPortsExhausted),
        row("a port that a socket of the node listens at is passed over")
            .given(remote(at, TCP).ports(62_000, 62_001).held(TCP, masked))
            .packet(NodeIngress, syn())
            .routed(FlowOpened, tcp(port(62_001), far).syn().hops(63))
            .leaves([opened(62_001)]),
        row("a port that a UDP socket of the node has is not given out")
            .given(remote(at, UDP).held(UDP, masked))
            .packet(NodeIngress, udp(client, frontend))
            .dropped(DroppedPortsExhausted),
        row("a port that a socket has at all addresses is not given out")
            .given(remote(at, UDP).held(UDP, (unspecified(at), SNAT_PORT)))
            .packet(NodeIngress, udp(client, frontend))
            .dropped(DroppedPortsExhausted),
        row("a port that a socket has at another address of the node's is free")
            .given(remote(at, UDP).held(UDP, (at.node_also, SNAT_PORT)))
            .packet(NodeIngress, udp(client, frontend))
            .routed(FlowOpened, udp(masked, far).hops(63))
            .leaves([connection(UDP, [client, frontend], [masked, far])]),
        row("a port that a UDP socket has is free for TCP")
            .given(remote(at, TCP).held(UDP, masked))
            .packet(NodeIngress, syn())
            .routed(FlowOpened, tcp(masked, far).syn().hops(63))
            .leaves([opened(SNAT_PORT)]),
        row("a port that a frontend has at the node's own address is not given out")
            .given(remote(at, TCP).frontend(masked, TCP, FRONTEND))
            .packet(NodeIngress, syn())
            .dropped(DroppedPortsExhausted),
        row("a port that a frontend has at the node's own address is passed over")
            .given(remote(at, TCP).ports(62_000, 62_001).frontend(masked, TCP, FRONTEND))
            .packet(NodeIngress, syn())
            .routed(FlowOpened, tcp(port(62_001), far).syn().hops(63))
            .leaves([opened(62_001)]),
        row("a port that a frontend of UDP has is free for TCP")
            .given(remote(at, TCP).frontend(masked, UDP, FRONTEND))
            .packet(NodeIngress, syn())
            .routed(FlowOpened, tcp(masked, far).syn().hops(63))
            .leaves([opened(SNAT_PORT)]),
        row("SCTP sockets are not looked up")
            .given(remote(at, SCTP).held(TCP, masked).held(UDP, masked))
            .packet(NodeIngress, sctp(client, frontend, INIT))
            .routed(FlowOpened, sctp(masked, far, INIT).hops(63))
            .leaves([connection(SCTP, [client, frontend], [masked, far]).seen(OPEN)]),
        row("a pod that reaches one backend over two frontends from one port gets another port for the second")
            .given(two_frontends().connection(first.age(5)))
            .packet(PodIngress, tcp(pod_client, cluster_also).syn())
            .passed_on(FlowOpened, tcp((at.pod_a, SNAT_PORT), other_pod).syn())
            .leaves([first.age(5), second]),
        row("a client outside that reaches one backend over two frontends from one port, too")
            .given(local(at, TCP).connection(connection(TCP, [client, node_port], [client, pod]).seen(OPEN).age(5)))
            .packet(NodeIngress, syn())
            .passed_on(FlowOpened, tcp((at.client, SNAT_PORT), pod).syn())
            .leaves([
                connection(TCP, [client, node_port], [client, pod]).seen(OPEN).age(5),
                connection(TCP, [client, frontend], [(at.client, SNAT_PORT), pod]).seen(OPEN),
            ]),
        row("the reply of the second is the second frontend's")
            .given(two_frontends().connection(first.age(5)).connection(second))
            .packet(PodEgress, tcp(other_pod, (at.pod_a, SNAT_PORT)).syn().ack())
            .passed_on(FlowReplied, tcp(cluster_also, pod_client).syn().ack())
            .leaves([first.age(5), second.seen(OPEN | ANSWER)]),
        row("the reply of the first stays the first frontend's")
            .given(two_frontends().connection(first).connection(second.age(5)))
            .packet(PodEgress, tcp(other_pod, pod_client).syn().ack())
            .passed_on(FlowReplied, tcp(cluster, pod_client).syn().ack())
            .leaves([first.seen(OPEN | ANSWER), second.age(5)]),
        row("over a second frontend, where the first flow is over, the client keeps its port")
            .given(two_frontends().connection(first.age(61)))
            .packet(PodIngress, tcp(pod_client, cluster_also).syn())
            .passed_on(FlowOpened, tcp(pod_client, other_pod).syn())
            .leaves([
                first.age(61).without_reply(),
                connection(TCP, [pod_client, cluster_also], [pod_client, other_pod]).seen(OPEN),
            ]),
        row("over a second frontend, where no port is free, a packet is dropped")
            .given(
                two_frontends().connection(first.age(5)).connection(
                    connection(TCP, [(at.pod_a, 41_001), cluster], [(at.pod_a, SNAT_PORT), other_pod])
                        .seen(OPEN)
                        .age(5),
                ),
            )
            .packet(PodIngress, tcp(pod_client, cluster_also).syn())
            .dropped(DroppedPortsExhausted),
        row("sockets of the node do not keep ports from pods")
            .given(two_frontends().connection(first.age(5)).held(TCP, (unspecified(at), SNAT_PORT)))
            .packet(PodIngress, tcp(pod_client, cluster_also).syn())
            .passed_on(FlowOpened, tcp((at.pod_a, SNAT_PORT), other_pod).syn())
            .leaves([first.age(5), second]),
    ]
}
