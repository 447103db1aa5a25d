//! SNAT: backends elsewhere must answer by way of this node.

use super::prelude::*;

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        frontend,
        cluster,
        node_port,
        pod_client,
        far,
        masked,
        pod,
        ..
    } = ends(at);
    let remotely = |protocol| connection(protocol, [client, frontend], [masked, far]);
    let mut nameless = remote(at, TCP);
    nameless.config.node_v4 = Config::NONE.node_v4;
    nameless.config.node_v6 = Config::NONE.node_v6;
    vec![
        row("a SYN from outside goes to a backend elsewhere from the node's address and a port of ours")
            .given(remote(at, TCP))
            .packet(NodeIngress, tcp(client, frontend).syn())
            .routed(FlowOpened, tcp(masked, far).syn().hops(63))
            .leaves([remotely(TCP).seen(OPEN)]),
        row("a SYN from outside to a node port, too; it comes from CONFIG's address whichever it asked for")
            .given(remote(at, TCP))
            .packet(NodeIngress, tcp(client, (at.node_also, NODE_PORT)).syn())
            .routed(FlowOpened, tcp(masked, far).syn().hops(63))
            .leaves([connection(TCP, [client, (at.node_also, NODE_PORT)], [masked, far]).seen(OPEN)]),
        row("a datagram from outside, too")
            .given(remote(at, UDP))
            .packet(NodeIngress, udp(client, frontend))
            .routed(FlowOpened, udp(masked, far).hops(63))
            .leaves([remotely(UDP)]),
        row("an INIT from outside, too; the checksum follows both ports")
            .given(remote(at, SCTP))
            .packet(NodeIngress, sctp(client, frontend, INIT))
            .routed(FlowOpened, sctp(masked, far, INIT).hops(63))
            .leaves([remotely(SCTP).seen(OPEN)]),
        row("the next packets of the flow go the same way")
            .given(remote(at, TCP).connection(remotely(TCP).seen(OPEN | ANSWER | ESTABLISHED).age(9)))
            .packet(NodeIngress, tcp(client, frontend).ack().data(55))
            .routed(FlowForwarded, tcp(masked, far).ack().data(55).hops(63))
            .leaves([remotely(TCP).seen(OPEN | ANSWER | ESTABLISHED)]),
        row("what the backend answers to the node is the frontend's, and goes to the client")
            .given(remote(at, TCP).connection(remotely(TCP).seen(OPEN)))
            .packet(NodeIngress, tcp(far, masked).syn().ack())
            .routed(FlowReplied, tcp(frontend, client).syn().ack().hops(63))
            .leaves([remotely(TCP).seen(OPEN | ANSWER)]),
        row("a datagram that the backend answers with, too")
            .given(remote(at, UDP).connection(remotely(UDP)))
            .packet(NodeIngress, udp(far, masked))
            .routed(FlowReplied, udp(frontend, client).hops(63))
            .leaves([remotely(UDP).seen(ANSWER)]),
        row("SCTP that the backend answers with, too")
            .given(remote(at, SCTP).connection(remotely(SCTP).seen(OPEN)))
            .packet(NodeIngress, sctp(far, masked, INIT_ACK))
            .routed(FlowReplied, sctp(frontend, client, INIT_ACK).hops(63))
            .leaves([remotely(SCTP).seen(OPEN | ANSWER)]),
        row("a connection there and back")
            .given(remote(at, TCP))
            .packet(NodeIngress, tcp(client, node_port).syn())
            .routed(FlowOpened, tcp(masked, far).syn().hops(63))
            .packet(NodeIngress, tcp(far, masked).syn().ack())
            .routed(FlowReplied, tcp(node_port, client).syn().ack().hops(63))
            .packet(NodeIngress, tcp(client, node_port).ack())
            .routed(FlowForwarded, tcp(masked, far).ack().hops(63))
            .packet(NodeIngress, tcp(client, node_port).fin().ack())
            .routed(FlowForwarded, tcp(masked, far).fin().ack().hops(63))
            .packet(NodeIngress, tcp(far, masked).fin().ack())
            .routed(FlowReplied, tcp(node_port, client).fin().ack().hops(63))
            .leaves([connection(TCP, [client, node_port], [masked, far]).seen(OPEN | ANSWER | ESTABLISHED | CLIENT_FIN | BACKEND_FIN)]),
        row("what leaves the node for a frontend from an address that is not the node's comes from the node's")
            .given(remote(at, TCP))
            .packet(NodeEgress, tcp(pod_client, cluster).syn())
            .routed(FlowOpened, tcp(masked, far).syn())
            .leaves([connection(TCP, [pod_client, cluster], [masked, far]).seen(OPEN)]),
        row("so that it is a pod's of this node, too")
            .given(local(at, UDP))
            .packet(NodeEgress, udp((at.pod_b, 41_000), cluster))
            .routed(FlowOpened, udp(masked, pod))
            .leaves([connection(UDP, [(at.pod_b, 41_000), cluster], [masked, pod])]),
        row("without an address of the node's nothing goes to backends elsewhere")
            .given(nameless)
            .packet(NodeIngress, tcp(client, frontend).syn())
            .dropped(DroppedRoute),
    ]
}
