//! Flows that end because another begins, and flows whose entries are gone or disagree.

use lb_abi::BackendId;

use super::prelude::*;

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        stranger,
        frontend,
        pod,
        other_pod,
        far,
        masked,
        ..
    } = ends(at);
    let flow = |protocol, seen| connection(protocol, [client, frontend], [client, pod]).seen(seen);
    let to_other = |protocol, seen| connection(protocol, [client, frontend], [client, other_pod]).seen(seen);
    let established = OPEN | ANSWER | ESTABLISHED;
    let also = (at.remote_also, 8080);
    let was_reset = connection(TCP, [client, frontend], [masked, far]).seen(established | RESET);
    // The usual service, served by another backend than that of the flow, whose id is 2 and no one's.
    let moved = |protocol| local_other(at, protocol);
    let gone: BackendId = 2;
    let mut rows = Vec::new();
    for (what, seen) in [
        ("whose client has finished", CLIENT_FIN),
        ("whose backend has finished", BACKEND_FIN),
        ("that was reset", RESET),
    ] {
        rows.extend([
            row(format!("a SYN on a connection {what} opens another"))
                .given(local(at, TCP).connection(flow(TCP, established | seen).age(5)))
                .packet(NodeIngress, tcp(client, frontend).syn())
                .passed_on(FlowOpened, tcp(client, pod).syn())
                .leaves([flow(TCP, OPEN)]),
            row(format!("an INIT on an association {what} opens another"))
                .given(local(at, SCTP).connection(flow(SCTP, established | seen).age(5)))
                .packet(NodeIngress, sctp(client, frontend, INIT))
                .passed_on(FlowOpened, sctp(client, pod, INIT))
                .leaves([flow(SCTP, OPEN)]),
        ]);
    }
    rows.extend([
        row("a SYN with ACK is no SYN: it belongs to the connection that ends")
            .given(local(at, TCP).connection(flow(TCP, established | CLIENT_FIN).age(5)))
            .packet(NodeIngress, tcp(client, frontend).syn().ack())
            .passed_on(FlowForwarded, tcp(client, pod).syn().ack())
            .leaves([flow(TCP, established | CLIENT_FIN)]),
        row("a SYN to a backend that is gone opens a connection to another, and the old one's entries go")
            .given(moved(TCP).connection(flow(TCP, established).by(SERVICE, gone).age(5)))
            .packet(NodeIngress, tcp(client, frontend).syn())
            .passed_on(FlowOpened, tcp(client, other_pod).syn())
            .leaves([to_other(TCP, OPEN)]),
        row("a SYN that is sent again, of a connection that was never answered, may come to another backend; the old one's entries go")
            .given(
                local(at, TCP)
                    .service(SERVICE, &[2])
                    .local_backend(2, other_pod, TCP)
                    .connection(flow(TCP, OPEN).age(2)),
            )
            .packet(NodeIngress, tcp(client, frontend).syn())
            .passed_on(FlowOpened, tcp(client, other_pod).syn())
            .counted_for(SERVICE, 2)
            .leaves([to_other(TCP, OPEN).by(SERVICE, 2)]),
        row("a SYN that comes twice at the same time is one connection's")
            .given(
                local(at, TCP)
                    .service(SERVICE, &[2])
                    .local_backend(2, other_pod, TCP)
                    .connection(flow(TCP, OPEN).age(1)),
            )
            .packet(NodeIngress, tcp(client, frontend).syn())
            .passed_on(FlowForwarded, tcp(client, pod).syn())
            .leaves([flow(TCP, OPEN)]),
        row("a SYN that is sent again, of a connection that was answered, goes to the same backend, also one that serves no new ones")
            .given(
                local(at, TCP)
                    .service(SERVICE, &[2])
                    .local_backend(2, other_pod, TCP)
                    .connection(flow(TCP, OPEN | ANSWER).age(2)),
            )
            .packet(NodeIngress, tcp(client, frontend).syn())
            .passed_on(FlowForwarded, tcp(client, pod).syn())
            .leaves([flow(TCP, OPEN | ANSWER)]),
        row("a SYN that is sent again to a backend elsewhere that has not answered has its port again")
            .given(
                remote(at, TCP)
                    .ports(SNAT_PORT - 200, SNAT_PORT + 200)
                    .connection(connection(TCP, [client, frontend], [masked, far]).seen(OPEN).age(2)),
            )
            .packet(NodeIngress, tcp(client, frontend).syn())
            .routed(FlowOpened, tcp(masked, far).syn().hops(63))
            .leaves([connection(TCP, [client, frontend], [masked, far]).seen(OPEN)]),
        row("an INIT that is sent again, of an association that was never answered, may come to another backend")
            .given(
                local(at, SCTP)
                    .service(SERVICE, &[2])
                    .local_backend(2, other_pod, SCTP)
                    .connection(flow(SCTP, OPEN).age(2)),
            )
            .packet(NodeIngress, sctp(client, frontend, INIT))
            .passed_on(FlowOpened, sctp(client, other_pod, INIT))
            .counted_for(SERVICE, 2)
            .leaves([to_other(SCTP, OPEN).by(SERVICE, 2)]),
        row("an established connection to a backend that is gone goes on: it may be ending in its grace")
            .given(moved(TCP).connection(flow(TCP, established).by(SERVICE, gone).age(5)))
            .packet(NodeIngress, tcp(client, frontend).ack())
            .passed_on(FlowForwarded, tcp(client, pod).ack())
            .counted_for(SERVICE, gone)
            .leaves([flow(TCP, established).by(SERVICE, gone)]),
        row("datagrams to a backend that is gone go to another at once, and the old one's entries go")
            .given(moved(UDP).connection(flow(UDP, ANSWER).by(SERVICE, gone).age(5)))
            .packet(NodeIngress, udp(client, frontend))
            .passed_on(FlowOpened, udp(client, other_pod))
            .leaves([to_other(UDP, 0)]),
        row("a backend's number that another address has got is a backend that is gone")
            .given(moved(UDP).connection(flow(UDP, ANSWER).age(5)))
            .packet(NodeIngress, udp(client, frontend))
            .passed_on(FlowOpened, udp(client, other_pod))
            .leaves([to_other(UDP, 0)]),
        row("a backend's number that another port has got is a backend that is gone")
            .given(
                local(at, UDP)
                    .behind(true, (pod.0, 8081), UDP)
                    .connection(flow(UDP, ANSWER).age(5)),
            )
            .packet(NodeIngress, udp(client, frontend))
            .passed_on(FlowOpened, udp(client, (pod.0, 8081)))
            .leaves([connection(UDP, [client, frontend], [client, (pod.0, 8081)])]),
        row("a backend that is the same, but not of the service any more, keeps its datagrams")
            .given(
                local(at, UDP)
                    .service(SERVICE, &[2])
                    .local_backend(2, other_pod, UDP)
                    .connection(flow(UDP, ANSWER).age(5)),
            )
            .packet(NodeIngress, udp(client, frontend))
            .passed_on(FlowForwarded, udp(client, pod))
            .leaves([flow(UDP, ANSWER)]),
        row("datagrams to a backend that is gone, where no other is left, are rejected")
            .given(nobody(at, UDP).connection(flow(UDP, ANSWER).by(SERVICE, gone).age(5)))
            .packet(NodeIngress, udp(client, frontend))
            .answered(
                RejectedNoBackend,
                unreachable(frontend, client, &udp(client, frontend)),
            ),
        row("replies of a backend that is gone are still the frontend's")
            .given(moved(UDP).connection(flow(UDP, ANSWER).by(SERVICE, gone).age(5)))
            .packet(NodeEgress, udp(pod, client))
            .passed_on(FlowReplied, udp(frontend, client))
            .counted_for(SERVICE, gone)
            .leaves([flow(UDP, ANSWER).by(SERVICE, gone)]),
        row("datagrams to a backend elsewhere that is gone go to another elsewhere; the old port is free")
            .given(
                remote(at, UDP).behind(false, also, UDP).connection(
                    connection(UDP, [client, frontend], [masked, far])
                        .by(SERVICE, gone)
                        .age(5),
                ),
            )
            .packet(NodeIngress, udp(client, frontend))
            .routed(FlowOpened, udp(masked, also).hops(63))
            .leaves([connection(UDP, [client, frontend], [masked, also])]),
        row("a SYN on a connection elsewhere that was reset has its port again, at once")
            .given(
                remote(at, TCP)
                    .ports(SNAT_PORT - 200, SNAT_PORT + 200)
                    .connection(was_reset),
            )
            .packet(NodeIngress, tcp(client, frontend).syn())
            .routed(FlowOpened, tcp(masked, far).syn().hops(63))
            .leaves([connection(TCP, [client, frontend], [masked, far]).seen(OPEN)]),
        row("a SYN on a connection elsewhere whose port a socket has got gets another port, and the old one's entries go")
            .given(
                remote(at, TCP)
                    .ports(SNAT_PORT, SNAT_PORT + 1)
                    .connection(was_reset)
                    .held(TCP, masked),
            )
            .packet(NodeIngress, tcp(client, frontend).syn())
            .routed(FlowOpened, tcp((at.node, SNAT_PORT + 1), far).syn().hops(63))
            .leaves([connection(TCP, [client, frontend], [(at.node, SNAT_PORT + 1), far]).seen(OPEN)]),
        row("a SYN on a connection elsewhere whose port a frontend has got gets another port, and the old one's entries go")
            .given(
                remote(at, TCP)
                    .ports(SNAT_PORT, SNAT_PORT + 1)
                    .connection(was_reset)
                    .frontend(masked, TCP, FRONTEND),
            )
            .packet(NodeIngress, tcp(client, frontend).syn())
            .routed(FlowOpened, tcp((at.node, SNAT_PORT + 1), far).syn().hops(63))
            .leaves([connection(TCP, [client, frontend], [(at.node, SNAT_PORT + 1), far]).seen(OPEN)]),
        row("a SYN on a connection elsewhere whose port is not among those of SNAT any more gets one that is")
            .given(
                remote(at, TCP)
                    .ports(SNAT_PORT + 1, SNAT_PORT + 1)
                    .connection(was_reset),
            )
            .packet(NodeIngress, tcp(client, frontend).syn())
            .routed(FlowOpened, tcp((at.node, SNAT_PORT + 1), far).syn().hops(63))
            .leaves([connection(TCP, [client, frontend], [(at.node, SNAT_PORT + 1), far]).seen(OPEN)]),
        row("a flow without the backend's entry gets it again")
            .given(local(at, TCP).connection(flow(TCP, established).without_reply().age(5)))
            .packet(NodeIngress, tcp(client, frontend).ack())
            .passed_on(FlowForwarded, tcp(client, pod).ack())
            .leaves([flow(TCP, established)]),
        row("a flow with SNAT without the backend's entry gets it again")
            .given(
                remote(at, TCP).connection(
                    connection(TCP, [client, frontend], [masked, far])
                        .seen(established)
                        .without_reply()
                        .age(5),
                ),
            )
            .packet(NodeIngress, tcp(client, frontend).ack())
            .routed(FlowForwarded, tcp(masked, far).ack().hops(63))
            .leaves([connection(TCP, [client, frontend], [masked, far]).seen(established)]),
        row("a flow whose backend's entry leads to another client is lost: what is in its middle is told so")
            .given(
                remote(at, TCP)
                    .connection(
                        connection(TCP, [client, frontend], [masked, far])
                            .seen(established)
                            .without_reply()
                            .age(5),
                    )
                    .connection(
                        connection(TCP, [stranger, frontend], [masked, far])
                            .seen(established)
                            .age(5),
                    ),
            )
            .packet(NodeIngress, tcp(client, frontend).ack())
            .answered(RejectedNoFlow, reset(frontend, client, 0x2000_0002, None))
            .leaves([connection(TCP, [stranger, frontend], [masked, far])
                .seen(established)
                .age(5)]),
        row("a datagram whose flow is lost begins a new one, by another port")
            .given(
                remote(at, UDP)
                    .ports(62_001, 62_001)
                    .connection(
                        connection(UDP, [client, frontend], [masked, far])
                            .without_reply()
                            .age(5),
                    )
                    .connection(connection(UDP, [stranger, frontend], [masked, far]).age(5)),
            )
            .packet(NodeIngress, udp(client, frontend))
            .routed(FlowOpened, udp((at.node, 62_001), far).hops(63))
            .leaves([
                connection(UDP, [stranger, frontend], [masked, far]).age(5),
                connection(UDP, [client, frontend], [(at.node, 62_001), far]),
            ]),
    ]);
    rows
}
