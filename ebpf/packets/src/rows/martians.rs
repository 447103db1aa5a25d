//! Sources that no host can have.

use std::net::{IpAddr, Ipv4Addr};

use super::prelude::*;

fn martian(says: &str, at: &Addresses, source: IpAddr) -> Vec<Row> {
    let Ends {
        frontend,
        node_port,
        cluster,
        ..
    } = ends(at);
    let client = (source, 40_000);
    vec![
        row(format!("{says} is no client of a service"))
            .given(local(at, UDP))
            .packet(NodeIngress, udp(client, frontend))
            .dropped(DroppedMartian),
        row(format!("{says} is no client of a service, from a pod"))
            .given(local_other(at, UDP))
            .packet(PodIngress, udp(client, cluster))
            .dropped(DroppedMartian),
        row(format!("{says} is no client of a node port"))
            .given(local(at, TCP))
            .packet(NodeIngress, tcp(client, node_port).syn())
            .dropped(DroppedMartian),
        row(format!(
            "{says} is the stack's matter where no service is asked for"
        ))
        .given(local(at, UDP))
        .packet(NodeIngress, udp(client, (at.node, 53)))
        .left_alone(PacketPassed),
        row(format!("{says} is not told that a port is unknown"))
            .given(local(at, UDP))
            .packet(NodeIngress, udp(client, (frontend.0, 81)))
            .dropped(RejectedUnknownPort),
    ]
}

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends {
        frontend,
        cluster,
        pod,
        ..
    } = ends(at);
    let (loopback, multicast) = if at.node.is_ipv4() {
        ("127.1.2.3", "224.0.0.251")
    } else {
        ("::1", "ff02::fb")
    };
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let mut rows = [
        martian("the unspecified address", at, unspecified(at)),
        martian("a loopback address", at, address(loopback)),
        martian("a multicast address", at, address(multicast)),
    ]
    .concat();
    rows.extend([
        row("from outside, the node's own address is nobody's")
            .given(local(at, UDP))
            .packet(NodeIngress, udp((at.node, 40_000), frontend))
            .dropped(DroppedMartian),
        row("from outside, a service's address is nobody's")
            .given(local(at, UDP))
            .packet(NodeIngress, udp((at.cluster_ip, 40_000), frontend))
            .dropped(DroppedMartian),
        row("from outside, the node's own address is not told that a port is unknown")
            .given(local(at, UDP))
            .packet(NodeIngress, udp((at.node, 40_000), (frontend.0, 81)))
            .dropped(RejectedUnknownPort),
        row("from outside, a service's address is not told that a port is unknown")
            .given(local(at, TCP))
            .packet(NodeIngress, tcp((at.cluster_ip, 40_000), (frontend.0, 81)).syn())
            .dropped(RejectedUnknownPort),
        row("from a pod's device, the node's own address may be a client")
            .given(local(at, UDP))
            .packet(PodIngress, udp((at.node_also, 40_000), cluster))
            .passed_on(FlowOpened, udp((at.node_also, 40_000), pod))
            .leaves([connection(
                UDP,
                [(at.node_also, 40_000), cluster],
                [(at.node_also, 40_000), pod],
            )]),
    ]);
    rows
}

pub(super) fn v4() -> Vec<Row> {
    martian(
        "the broadcast address",
        &crate::test_node::V4,
        Ipv4Addr::BROADCAST.into(),
    )
}
