//! Checksums that are zero, become zero, or are wrong: they stay as right or wrong as they were.

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
    let locally = |protocol, seen| connection(protocol, [client, frontend], [client, pod]).seen(seen);
    let zero = udp(client, pod).zero_sum();
    let zero_in = zero.clone().to(frontend);
    let zero_out = udp(frontend, client).zero_sum();
    vec![
        row("a UDP checksum that becomes 0 is sent as 0xffff")
            .given(local(at, UDP))
            .packet(NodeIngress, zero_in)
            .passed_on(FlowOpened, zero)
            .leaves([locally(UDP, 0)]),
        row("a UDP checksum that was sent as 0xffff is a 0 to calculate with")
            .given(local(at, UDP))
            .packet(NodeIngress, udp(client, frontend).zero_sum())
            .passed_on(FlowOpened, udp(client, frontend).zero_sum().to(pod))
            .leaves([locally(UDP, 0)]),
        row("a UDP checksum that becomes 0 in a reply is sent as 0xffff")
            .given(local(at, UDP).connection(locally(UDP, 0)))
            .packet(NodeEgress, zero_out.clone().from(pod))
            .passed_on(FlowReplied, zero_out)
            .leaves([locally(UDP, ANSWER)]),
        row("a UDP checksum of 0 stays: there is none")
            .given(local(at, UDP))
            .packet(NodeIngress, udp(client, frontend).no_checksum())
            .passed_on(FlowOpened, udp(client, pod).no_checksum())
            .leaves([connection(UDP, [client, frontend], [client, pod])]),
        row("a UDP checksum of 0 stays where the packet is routed, too")
            .given(remote(at, UDP))
            .packet(NodeIngress, udp(client, frontend).no_checksum())
            .routed(FlowOpened, udp(masked, far).no_checksum().hops(63))
            .leaves([connection(UDP, [client, frontend], [masked, far])]),
        row("a wrong TCP checksum is as wrong afterwards: the backend sees it")
            .given(local(at, TCP))
            .packet(NodeIngress, tcp(client, frontend).syn().checksum_off_by(0x1234))
            .passed_on(FlowOpened, tcp(client, pod).syn().checksum_off_by(0x1234))
            .still_wrong()
            .leaves([locally(TCP, OPEN)]),
        row("a wrong UDP checksum is as wrong afterwards, where the packet is routed")
            .given(remote(at, UDP))
            .packet(NodeIngress, udp(client, frontend).checksum_off_by(0x0101))
            .routed(FlowOpened, udp(masked, far).checksum_off_by(0x0101).hops(63))
            .still_wrong()
            .leaves([connection(UDP, [client, frontend], [masked, far])]),
        row("an SCTP checksum of 0 is left to the device")
            .given(local(at, SCTP))
            .packet(NodeIngress, sctp(client, frontend, INIT).no_checksum())
            .passed_on(FlowOpened, sctp(client, pod, INIT).no_checksum())
            .leaves([locally(SCTP, OPEN)]),
        row("an SCTP checksum of 0 is left to the device, where the packet is routed, too")
            .given(remote(at, SCTP))
            .packet(NodeIngress, sctp(client, frontend, INIT).no_checksum())
            .routed(FlowOpened, sctp(masked, far, INIT).no_checksum().hops(63))
            .leaves([connection(SCTP, [client, frontend], [masked, far]).seen(OPEN)]),
        row("a wrong SCTP checksum is as wrong afterwards")
            .given(local(at, SCTP))
            .packet(NodeIngress, sctp(client, frontend, INIT).crc_off_by(0x8100_0421))
            .passed_on(FlowOpened, sctp(client, pod, INIT).crc_off_by(0x8100_0421))
            .still_wrong()
            .leaves([locally(SCTP, OPEN)]),
        row("an SCTP checksum of a long packet follows its ports")
            .given(remote(at, SCTP).connection(
                connection(SCTP, [client, frontend], [masked, far]).seen(OPEN | ANSWER | ESTABLISHED),
            ))
            .packet(NodeIngress, sctp(client, frontend, DATA).data(1396))
            .routed(FlowForwarded, sctp(masked, far, DATA).data(1396).hops(63))
            .leaves([connection(SCTP, [client, frontend], [masked, far]).seen(OPEN | ANSWER | ESTABLISHED)]),
    ]
}

pub(super) fn v4() -> Vec<Row> {
    let at = &crate::test_node::V4;
    let Ends {
        client,
        frontend,
        pod,
        ..
    } = ends(at);
    vec![
        row("a wrong header checksum is as wrong afterwards")
            .given(local(at, UDP))
            .packet(NodeIngress, udp(client, frontend).header_checksum_off_by(0x1001))
            .passed_on(FlowOpened, udp(client, pod).header_checksum_off_by(0x1001))
            .still_wrong()
            .leaves([connection(UDP, [client, frontend], [client, pod])]),
        row("what is merged may say nothing of its length: then it is as long as it is")
            .given(local(at, TCP).connection(connection(TCP, [client, frontend], [client, pod]).seen(OPEN)))
            .packet(
                NodeIngress,
                tcp(client, frontend).ack().data(2000).network_bytes(2, &[0, 0]),
            )
            .segments(1000)
            .passed_on(
                FlowForwarded,
                tcp(client, pod).ack().data(2000).network_bytes(2, &[0, 0]),
            )
            .still_wrong()
            .leaves([connection(TCP, [client, frontend], [client, pod]).seen(OPEN | ESTABLISHED)]),
    ]
}
