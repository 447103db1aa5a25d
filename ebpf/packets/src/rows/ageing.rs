//! For how long a flow lasts without packets, by what has been seen of it.

use super::prelude::*;

/// What has been seen, in words; and for how many seconds it lasts.
const TCP_LIMITS: [(&str, u32, i32); 10] = [
    ("that was opened", OPEN, 60),
    ("of which no SYN was seen", 0, 60),
    ("whose client was not heard after the answer", OPEN | ANSWER, 60),
    ("that was not answered", OPEN | ESTABLISHED, 60),
    ("that is established", OPEN | ANSWER | ESTABLISHED, 86_400),
    (
        "whose client has finished",
        OPEN | ANSWER | ESTABLISHED | CLIENT_FIN,
        3600,
    ),
    (
        "whose backend has finished",
        OPEN | ANSWER | ESTABLISHED | BACKEND_FIN,
        3600,
    ),
    (
        "whose ends both have finished",
        OPEN | ANSWER | ESTABLISHED | CLIENT_FIN | BACKEND_FIN,
        120,
    ),
    ("that was reset", OPEN | ANSWER | ESTABLISHED | RESET, 10),
    (
        "that was reset after it was finished",
        OPEN | ANSWER | ESTABLISHED | CLIENT_FIN | BACKEND_FIN | RESET,
        10,
    ),
];
const UDP_LIMITS: [(&str, u32, i32); 2] = [
    ("that was not answered", 0, 30),
    ("that was answered", ANSWER, 120),
];
const SCTP_LIMITS: [(&str, u32, i32); 7] = [
    ("that was opened", OPEN, 60),
    ("of which no INIT was seen", 0, 60),
    ("whose client was not heard after the answer", OPEN | ANSWER, 60),
    ("that is established", OPEN | ANSWER | ESTABLISHED, 86_400),
    (
        "whose client shuts down",
        OPEN | ANSWER | ESTABLISHED | CLIENT_FIN,
        120,
    ),
    (
        "whose ends both shut down",
        OPEN | ANSWER | ESTABLISHED | CLIENT_FIN | BACKEND_FIN,
        120,
    ),
    ("that was aborted", OPEN | ANSWER | ESTABLISHED | RESET, 10),
];

/// A row begins and its packet is seen within so many seconds.
const MARGIN: i32 = 4;

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        frontend,
        pod,
        ..
    } = ends(at);
    let flow = |protocol, seen, age| {
        connection(protocol, [client, frontend], [client, pod])
            .seen(seen)
            .age(age)
    };
    let again = |protocol, seen| connection(protocol, [client, frontend], [client, pod]).seen(seen);
    let mut rows = Vec::new();
    for (what, seen, limit) in TCP_LIMITS {
        let segment = tcp(client, frontend).ack();
        rows.extend([
            row(format!("a connection {what} lasts {limit} s"))
                .given(local(at, TCP).connection(flow(TCP, seen, limit - MARGIN)))
                .packet(NodeIngress, segment.clone())
                .passed_on(FlowForwarded, tcp(client, pod).ack())
                .leaves([again(TCP, seen | ESTABLISHED)]),
            row(format!(
                "a connection {what} is over after {limit} s: what comes then is told so"
            ))
            .given(local(at, TCP).connection(flow(TCP, seen, limit + 1)))
            .packet(NodeIngress, segment)
            .answered(RejectedNoFlow, reset(frontend, client, 0x2000_0002, None)),
            row(format!(
                "a connection {what} is over after {limit} s: a SYN opens another"
            ))
            .given(local(at, TCP).connection(flow(TCP, seen, limit + 1)))
            .packet(NodeIngress, tcp(client, frontend).syn())
            .passed_on(FlowOpened, tcp(client, pod).syn())
            .leaves([again(TCP, OPEN)]),
        ]);
    }
    for (what, seen, limit) in UDP_LIMITS {
        rows.extend([
            row(format!("a flow of datagrams {what} lasts {limit} s"))
                .given(local(at, UDP).connection(flow(UDP, seen, limit - MARGIN)))
                .packet(NodeIngress, udp(client, frontend))
                .passed_on(FlowForwarded, udp(client, pod))
                .leaves([again(UDP, seen)]),
            row(format!(
                "a flow of datagrams {what} is over after {limit} s, and begins anew"
            ))
            .given(local(at, UDP).connection(flow(UDP, seen, limit + 1)))
            .packet(NodeIngress, udp(client, frontend))
            .passed_on(FlowOpened, udp(client, pod))
            .leaves([again(UDP, 0)]),
        ]);
    }
    for (what, seen, limit) in SCTP_LIMITS {
        rows.extend([
            row(format!("an association {what} lasts {limit} s"))
                .given(local(at, SCTP).connection(flow(SCTP, seen, limit - MARGIN)))
                .packet(NodeIngress, sctp(client, frontend, DATA))
                .passed_on(FlowForwarded, sctp(client, pod, DATA))
                .leaves([again(SCTP, seen | ESTABLISHED)]),
            row(format!(
                "an association {what} is over after {limit} s: what comes then is dropped"
            ))
            .given(local(at, SCTP).connection(flow(SCTP, seen, limit + 1)))
            .packet(NodeIngress, sctp(client, frontend, DATA))
            .dropped(DroppedNoFlow),
            row(format!(
                "an association {what} is over after {limit} s: an INIT opens another"
            ))
            .given(local(at, SCTP).connection(flow(SCTP, seen, limit + 1)))
            .packet(NodeIngress, sctp(client, frontend, INIT))
            .passed_on(FlowOpened, sctp(client, pod, INIT))
            .leaves([again(SCTP, OPEN)]),
        ]);
    }
    rows.push(
        row("a flow of which another processor saw a packet a second later is not over")
            .given(local(at, UDP).connection(flow(UDP, 0, -1)))
            .packet(NodeIngress, udp(client, frontend))
            .passed_on(FlowForwarded, udp(client, pod))
            .leaves([again(UDP, 0)]),
    );
    rows
}
