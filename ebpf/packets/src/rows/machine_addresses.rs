//! Addresses that are not Services' alone: load balancers' and external ones that machines have, the node's own, at which its
//! sockets are, and those that Services get and none has.

use lb_abi::AddressRange;

use super::prelude::*;

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    [balancers(at), own(at), to_itself(at), ranges(at)].concat()
}

/// What is at a load balancer's or an external address besides frontends.
fn balancers(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        frontend,
        node_port,
        pod_client,
        node_client,
        pod,
        ..
    } = ends(at);
    let other = (frontend.0, 81);
    let proxy = (at.load_balancer, 40_000);
    let from_proxy = connection(TCP, [proxy, node_port], [proxy, pod]).seen(OPEN);
    let external = |flags| local(at, TCP).address(frontend.0.into(), flags);
    let mut rows = vec![
        row("from outside, another port of a load balancer's address is rejected: it would be routed out again")
            .given(local(at, TCP))
            .packet(NodeIngress, tcp(client, other).syn())
            .answered(RejectedUnknownPort, reset(other, client, 0, Some(0x1000_0002))),
        row("from a pod, another port of a load balancer's address may be a machine's")
            .given(local(at, TCP))
            .packet(PodIngress, tcp(pod_client, other).syn())
            .left_alone(PacketPassed),
        row("from the node itself, too")
            .given(local(at, UDP))
            .packet(NodeEgress, udp(node_client, other))
            .left_alone(PacketPassed),
        row("so is a ping to it, and not one from outside")
            .given(local(at, TCP))
            .packet(PodIngress, echo(pod_client.0, frontend.0))
            .left_alone(PacketPassed)
            .packet(NodeIngress, echo(client.0, frontend.0))
            .dropped(DroppedIcmp),
        row("a load balancer that is also the node is the node's, but for its frontends")
            .given(local(at, TCP).address(
                frontend.0.into(),
                address_flags::LOAD_BALANCER | address_flags::NODE,
            ))
            .packet(NodeIngress, tcp(client, other).syn())
            .left_alone(PacketPassed)
            .packet(NodeIngress, tcp(client, frontend).syn())
            .passed_on(FlowOpened, tcp(client, pod).syn())
            .leaves([connection(TCP, [client, frontend], [client, pod]).seen(OPEN)]),
        row("a proxy whose address is a load balancer's is a client of node ports like any other")
            .given(local(at, TCP))
            .packet(NodeIngress, tcp(proxy, node_port).syn())
            .passed_on(FlowOpened, tcp(proxy, pod).syn())
            .leaves([from_proxy]),
        row("it is answered where the answer leaves, and not where the pod sends it: the stack takes nothing from the node")
            .given(local(at, TCP).connection(from_proxy))
            .packet(PodIngress, tcp(pod, proxy).syn().ack())
            .left_alone(PacketPassed)
            .packet(NodeEgress, tcp(pod, proxy).syn().ack())
            .passed_on(FlowReplied, tcp(node_port, proxy).syn().ack())
            .leaves([from_proxy.seen(OPEN | ANSWER)]),
    ];
    for (flags, what) in [
        (0, "an external IP"),
        (address_flags::LOAD_BALANCER, "a load balancer's address"),
    ] {
        rows.extend([
            row(format!(
                "a pod's connection to {what} that there is no flow of is with the machine that has it"
            ))
            .given(external(flags))
            .packet(PodIngress, tcp(pod_client, frontend).ack())
            .left_alone(PacketPassed)
            .packet(PodIngress, tcp(pod_client, frontend).rst())
            .left_alone(PacketPassed),
            row(format!("so is one of the node's own to {what}"))
                .given(external(flags))
                .packet(NodeEgress, tcp(node_client, frontend).ack())
                .left_alone(PacketPassed),
            row(format!(
                "from outside, what is in the middle of no connection with {what} is rejected"
            ))
            .given(external(flags))
            .packet(NodeIngress, tcp(client, frontend).ack())
            .answered(RejectedNoFlow, reset(frontend, client, 0x2000_0002, None)),
        ]);
    }
    rows
}

/// Node ports that the node itself asks, at its own address: at the loopback device.
fn to_itself(at: &Addresses) -> Vec<Row> {
    let Ends {
        node_port,
        node_client,
        pod,
        far,
        ..
    } = ends(at);
    let near = connection(TCP, [node_client, node_port], [node_client, pod]);
    let remote_one = connection(TCP, [node_client, node_port], [node_client, far]);
    let datagrams = connection(UDP, [node_client, node_port], [node_client, pod]);
    let asked = connection(UDP, [(at.node, 7000), node_port], [(at.node, 7000), node_port]).own();
    vec![
        row("the node reaches a pod by a node port at its own address, and is answered by the loopback device")
            .given(local(at, TCP))
            .packet(NodeEgress, tcp(node_client, node_port).syn())
            .routed(FlowOpened, tcp(node_client, pod).syn())
            .packet(PodIngress, tcp(pod, node_client).syn().ack())
            .routed(FlowReplied, tcp(node_port, node_client).syn().ack().inward())
            .leaves([near.seen(OPEN | ANSWER)]),
        row("it reaches a pod of another node in the same way")
            .given(remote(at, TCP))
            .packet(NodeEgress, tcp(node_client, node_port).syn())
            .routed(FlowOpened, tcp(node_client, far).syn())
            .packet(NodeIngress, tcp(far, node_client).syn().ack())
            .routed(FlowReplied, tcp(node_port, node_client).syn().ack().inward())
            .leaves([remote_one.seen(OPEN | ANSWER)]),
        row("and by datagrams")
            .given(local(at, UDP))
            .packet(NodeEgress, udp(node_client, node_port))
            .routed(FlowOpened, udp(node_client, pod))
            .packet(PodIngress, udp(pod, node_client))
            .routed(FlowReplied, udp(node_port, node_client).inward())
            .leaves([datagrams.seen(ANSWER)]),
        row("a tag goes, as the loopback device takes none")
            .given(local(at, TCP).connection(near.seen(OPEN)))
            .packet(PodIngress, tcp(pod, node_client).syn().ack().tag(C_TAG, 7))
            .routed(FlowReplied, tcp(node_port, node_client).syn().ack().inward())
            .leaves([near.seen(OPEN | ANSWER)]),
        row("a server of the node keeps its connections with the node itself")
            .given(local(at, TCP).held(TCP, node_port))
            .packet(NodeEgress, tcp(node_client, node_port).ack())
            .left_alone(PacketPassed),
        row("one server of the node answers another socket of it that has a node port's number")
            .given(local(at, UDP))
            .packet(NodeEgress, udp(node_port, (at.node, 7000)))
            .left_alone(PacketPassed)
            .packet(NodeEgress, udp((at.node, 7000), node_port))
            .left_alone(PacketPassed)
            .leaves([asked.seen(ANSWER)]),
    ]
}

/// The node's own sockets at node ports.
fn own(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        stranger,
        node_port,
        pod_client,
        pod,
        ..
    } = ends(at);
    let server = (at.client, 443);
    let balancer = (at.node, 80);
    let hashed = Frontend {
        flags: frontend_flags::MAGLEV,
        ..FRONTEND
    };
    let moving = || {
        let both = address_flags::LOAD_BALANCER | address_flags::NODE;
        let given = local(at, TCP).frontend(balancer, TCP, hashed);
        given.address(balancer.0.into(), both)
    };
    let listens = || local(at, TCP).held(TCP, node_port);
    let sends = connection(UDP, [client, node_port], [client, node_port]).own();
    vec![
        row("a server that had its port before the Service had it as node port keeps its connections")
            .given(listens())
            .packet(NodeIngress, tcp(client, node_port).ack().data(10))
            .left_alone(PacketPassed)
            .packet(NodeIngress, tcp(client, node_port).fin().ack())
            .left_alone(PacketPassed)
            .packet(PodIngress, tcp(pod_client, node_port).ack())
            .left_alone(PacketPassed),
        row("new connections are the Service's")
            .given(listens())
            .packet(NodeIngress, tcp(client, node_port).syn())
            .passed_on(FlowOpened, tcp(client, pod).syn())
            .leaves([connection(TCP, [client, node_port], [client, pod]).seen(OPEN)]),
        row("what answers a connection that netfilter has given a node port as its source port is the stack's")
            .given(local(at, TCP))
            .packet(NodeEgress, tcp(node_port, server).syn())
            .left_alone(PacketPassed)
            .packet(NodeIngress, tcp(server, node_port).syn().ack())
            .left_alone(PacketPassed)
            .packet(NodeIngress, tcp(server, node_port).ack().data(10))
            .left_alone(PacketPassed)
            .packet(NodeIngress, tcp(server, node_port).rst())
            .left_alone(PacketPassed),
        row("so it is with Maglev: no other node has that address")
            .given(local(at, TCP).frontend((unspecified(at), NODE_PORT), TCP, hashed))
            .packet(NodeIngress, tcp(server, node_port).syn().ack())
            .left_alone(PacketPassed),
        row("a load balancer's address moves between nodes: with Maglev, what is in the middle of a connection goes on")
            .given(moving())
            .packet(NodeIngress, tcp(client, balancer).ack())
            .passed_on(FlowOpened, tcp(client, pod).ack())
            .leaves([connection(TCP, [client, balancer], [client, pod]).seen(ESTABLISHED)]),
        row("there, too, the node's server keeps its connections")
            .given(moving().held(TCP, balancer))
            .packet(NodeIngress, tcp(client, balancer).ack())
            .left_alone(PacketPassed),
        row("of SCTP likewise")
            .given(local(at, SCTP))
            .packet(NodeIngress, sctp(server, node_port, INIT_ACK))
            .left_alone(PacketPassed),
        row("whom the node sends a datagram to from a node port is noted, and answers the node")
            .given(local(at, UDP))
            .packet(NodeEgress, udp(node_port, client))
            .left_alone(PacketPassed)
            .packet(NodeIngress, udp(client, node_port))
            .left_alone(PacketPassed)
            .leaves([sends.seen(ANSWER)]),
        row("so is a pod")
            .given(local(at, UDP))
            .packet(PodEgress, udp(node_port, pod_client))
            .left_alone(PacketPassed)
            .packet(PodIngress, udp(pod_client, node_port))
            .left_alone(PacketPassed)
            .leaves([connection(UDP, [pod_client, node_port], [pod_client, node_port])
                .own()
                .seen(ANSWER)]),
        row("others are clients of the Service")
            .given(local(at, UDP).connection(sends.age(5)))
            .packet(NodeIngress, udp(stranger, node_port))
            .passed_on(FlowOpened, udp(stranger, pod))
            .leaves([
                sends.age(5),
                connection(UDP, [stranger, node_port], [stranger, pod]),
            ]),
        row("after half a minute without an answer it is a client of the Service, too")
            .given(local(at, UDP).connection(sends.age(31)))
            .packet(NodeIngress, udp(client, node_port))
            .passed_on(FlowOpened, udp(client, pod))
            .leaves([connection(UDP, [client, node_port], [client, pod])]),
        row("each datagram renews the note")
            .given(local(at, UDP).connection(sends.age(25)))
            .packet(NodeEgress, udp(node_port, client))
            .left_alone(PacketPassed)
            .leaves([sends]),
        row("whom the node sends a datagram is no client: what it sent was an answer, and so is the next")
            .given(local(at, UDP).connection(connection(UDP, [client, node_port], [client, pod]).age(5)))
            .packet(NodeEgress, udp(node_port, client))
            .own()
            .left_alone(PacketPassed)
            .packet(NodeIngress, udp(client, node_port))
            .left_alone(PacketPassed)
            .leaves([sends.seen(ANSWER)]),
        row("nor is whom a pod sends one that is masqueraded by that port")
            .given(local(at, UDP).connection(connection(UDP, [client, node_port], [client, pod]).age(5)))
            .packet(NodeEgress, udp(node_port, client))
            .left_alone(PacketPassed)
            .packet(NodeIngress, udp(client, node_port))
            .left_alone(PacketPassed)
            .leaves([sends.seen(ANSWER)]),
        row("where a client's flow has that port with that peer, it sends from another")
            .given(local(at, UDP).connection(connection(UDP, [stranger, node_port], [node_port, client]).age(5)))
            .packet(NodeEgress, udp(node_port, client))
            .own()
            .passed_on(FlowOpened, udp((at.node, SNAT_PORT), client))
            .counted_for(0, 0)
            .leaves([
                connection(UDP, [stranger, node_port], [node_port, client]).age(5),
                connection(UDP, [node_port, client], [(at.node, SNAT_PORT), client]).by(0, 0),
            ]),
        row("nothing is noted of what is not from a node port, and of what is not the node's")
            .given(local(at, UDP))
            .packet(NodeEgress, udp((at.node, 5353), client))
            .left_alone(PacketPassed)
            .packet(NodeEgress, udp((at.pod_a, node_port.1), client))
            .left_alone(PacketPassed),
        row("nor of TCP, whose answers are the stack's anyhow")
            .given(local(at, TCP))
            .packet(NodeEgress, tcp(node_port, client).syn())
            .left_alone(PacketPassed),
    ]
}

/// Addresses that Services get, and none has.
fn ranges(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        pod_client,
        node_client,
        ..
    } = ends(at);
    // Of none that there is in ADDRESSES.
    let free = (at.narrow, 80);
    let length = if at.node.is_ipv4() { 24 } else { 64 };
    let range = || local(at, TCP).service_range(AddressRange::new(at.narrow.into(), length));
    let refused = |from| reset(free, from, 0, Some(0x1000_0002));
    vec![
        row("an address that Services get and none has is rejected, from outside")
            .given(range())
            .packet(NodeIngress, tcp(client, free).syn())
            .answered(RejectedUnknownPort, refused(client)),
        row("from a pod")
            .given(range())
            .packet(PodIngress, tcp(pod_client, free).syn())
            .answered(RejectedUnknownPort, refused(pod_client)),
        row("from the node itself, where it would leave")
            .given(range())
            .packet(NodeEgress, udp(node_client, free))
            .answered(
                RejectedUnknownPort,
                unreachable(free, node_client, &udp(node_client, free)),
            ),
        row("a ping to it is dropped")
            .given(range())
            .packet(PodIngress, echo(pod_client.0, free.0))
            .dropped(DroppedIcmp),
        row("but not if it is the cluster's: a node has it, or a pod")
            .given(range().with(Entry::Source(lb_abi::SourceKey::range(
                lb_abi::SourceKey::CLUSTER,
                at.narrow.into(),
                length,
            ))))
            .packet(PodIngress, tcp(pod_client, free).syn())
            .left_alone(PacketPassed)
            .packet(NodeEgress, udp(node_client, free))
            .left_alone(PacketPassed),
        row("nothing is rejected at pods' devices, which see answers")
            .given(range())
            .packet(PodEgress, tcp(client, free).syn())
            .left_alone(PacketPassed),
        row("without a range it is anybody's")
            .given(local(at, TCP))
            .packet(PodIngress, tcp(pod_client, free).syn())
            .left_alone(PacketPassed),
    ]
}
