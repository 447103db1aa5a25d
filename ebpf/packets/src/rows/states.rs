//! What packets show of a connection, in both directions.

use super::prelude::*;

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        frontend,
        pod,
        ..
    } = ends(at);
    let flow = |protocol, seen| connection(protocol, [client, frontend], [client, pod]).seen(seen);
    let answered = OPEN | ANSWER;
    let established = answered | ESTABLISHED;
    let forward = |says: &str, packet: Packet, out: Packet, before: u32, after: u32| {
        row(says)
            .given(local(at, TCP).connection(flow(TCP, before).age(5)))
            .packet(NodeIngress, packet)
            .passed_on(FlowForwarded, out)
            .leaves([flow(TCP, after)])
    };
    let reply = |says: &str, packet: Packet, out: Packet, before: u32, after: u32| {
        row(says)
            .given(local(at, TCP).connection(flow(TCP, before).age(5)))
            .packet(NodeEgress, packet)
            .passed_on(FlowReplied, out)
            .leaves([flow(TCP, after)])
    };
    let (to, from) = ([client, frontend], [pod, client]);
    let (sent, shown) = ([client, pod], [frontend, client]);
    let segment = |[source, destination]: [End; 2]| tcp(source, destination);
    let mut rows = vec![
        forward(
            "a SYN that is sent again although it was answered changes nothing",
            segment(to).syn(),
            segment(sent).syn(),
            OPEN | ANSWER,
            OPEN | ANSWER,
        ),
        forward(
            "a SYN in a flow that was found in the middle opens it",
            segment(to).syn(),
            segment(sent).syn(),
            0,
            OPEN,
        ),
        forward(
            "the client's ACK of the answer establishes",
            segment(to).ack(),
            segment(sent).ack(),
            answered,
            established,
        ),
        forward(
            "a RST in place of it does not",
            segment(to).rst(),
            segment(sent).rst(),
            answered,
            answered | RESET,
        ),
        forward(
            "an ACK changes nothing",
            segment(to).ack(),
            segment(sent).ack(),
            established,
            established,
        ),
        forward(
            "the client's FIN is the client's",
            segment(to).fin().ack(),
            segment(sent).fin().ack(),
            established,
            established | CLIENT_FIN,
        ),
        forward(
            "the client's RST resets",
            segment(to).rst(),
            segment(sent).rst(),
            established,
            established | RESET,
        ),
        forward(
            "the last ACK of a finished connection changes nothing",
            segment(to).ack(),
            segment(sent).ack(),
            established | CLIENT_FIN | BACKEND_FIN,
            established | CLIENT_FIN | BACKEND_FIN,
        ),
        forward(
            "a SYN of an established connection is the backend's matter",
            segment(to).syn(),
            segment(sent).syn(),
            established,
            established,
        ),
        reply(
            "the backend's SYN and ACK answer",
            segment(from).syn().ack(),
            segment(shown).syn().ack(),
            OPEN,
            answered,
        ),
        reply(
            "the backend's ACK tells that it has heard the client's",
            segment(from).ack(),
            segment(shown).ack(),
            answered,
            established,
        ),
        reply(
            "the backend's FIN is the backend's",
            segment(from).fin().ack(),
            segment(shown).fin().ack(),
            established,
            established | BACKEND_FIN,
        ),
        reply(
            "the backend's FIN after the client's finishes",
            segment(from).fin().ack(),
            segment(shown).fin().ack(),
            established | CLIENT_FIN,
            established | CLIENT_FIN | BACKEND_FIN,
        ),
        reply(
            "the backend's RST resets, and is an answer",
            segment(from).rst().ack(),
            segment(shown).rst().ack(),
            OPEN,
            answered | RESET,
        ),
        row("a datagram says nothing, and its reply that there is an answer")
            .given(local(at, UDP))
            .packet(NodeIngress, udp(client, frontend))
            .passed_on(FlowOpened, udp(client, pod))
            .packet(NodeEgress, udp(pod, client))
            .passed_on(FlowReplied, udp(frontend, client))
            .packet(NodeIngress, udp(client, frontend))
            .passed_on(FlowForwarded, udp(client, pod))
            .leaves([flow(UDP, ANSWER)]),
    ];
    for (chunk, name, seen) in [
        (DATA, "DATA", 0),
        (ABORT, "ABORT", RESET),
        (SHUTDOWN, "SHUTDOWN", CLIENT_FIN),
        (SHUTDOWN_ACK, "SHUTDOWN ACK", CLIENT_FIN),
        (SHUTDOWN_COMPLETE, "SHUTDOWN COMPLETE", RESET),
    ] {
        let of_backend = if seen == CLIENT_FIN { BACKEND_FIN } else { seen };
        rows.extend([
            row(format!("what the client's {name} shows"))
                .given(local(at, SCTP).connection(flow(SCTP, established).age(5)))
                .packet(NodeIngress, sctp(client, frontend, chunk))
                .passed_on(FlowForwarded, sctp(client, pod, chunk))
                .leaves([flow(SCTP, established | seen)]),
            row(format!("what the backend's {name} shows"))
                .given(local(at, SCTP).connection(flow(SCTP, OPEN).age(5)))
                .packet(NodeEgress, sctp(pod, client, chunk))
                .passed_on(FlowReplied, sctp(frontend, client, chunk))
                .leaves([flow(SCTP, answered | of_backend)]),
        ]);
    }
    rows.push(
        row("an INIT in an association opens nothing")
            .given(local(at, SCTP).connection(flow(SCTP, established).age(5)))
            .packet(NodeIngress, sctp(client, frontend, INIT))
            .passed_on(FlowForwarded, sctp(client, pod, INIT))
            .leaves([flow(SCTP, established)]),
    );
    rows
}
