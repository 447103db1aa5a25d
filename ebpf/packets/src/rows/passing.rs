//! What is left alone.

use super::prelude::*;

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        frontend,
        cluster,
        pod,
        pod_client,
        far,
        ..
    } = ends(at);
    let loopback: std::net::IpAddr = if at.node.is_ipv4() {
        std::net::Ipv4Addr::LOCALHOST.into()
    } else {
        std::net::Ipv6Addr::LOCALHOST.into()
    };
    let outdated = Meta {
        abi: Meta::CURRENT.abi - 1,
        ..Meta::CURRENT
    };
    let mut rows = vec![
        row("what comes in for nobody that ADDRESSES has is left alone, whatever FRONTENDS has of its port")
            .given(local(at, TCP))
            .packet(NodeIngress, tcp(client, (at.pod_b, NODE_PORT)).syn())
            .left_alone(PacketPassed),
        row("what a pod sends to anybody else is left alone")
            .given(local(at, TCP))
            .packet(PodIngress, tcp(pod_client, client).syn())
            .left_alone(PacketPassed),
        row("what the node sends to anybody else is left alone")
            .given(local(at, UDP))
            .packet(NodeEgress, udp((at.node, 42_000), client))
            .left_alone(PacketPassed),
        row("what a pod receives of no flow is left alone")
            .given(local(at, TCP))
            .packet(PodEgress, tcp(client, pod).ack())
            .left_alone(PacketPassed),
        row("towards a pod nothing is opened, even if it is for a frontend")
            .given(local_other(at, TCP))
            .packet(PodEgress, tcp(client, frontend).syn())
            .left_alone(PacketPassed),
        row("towards a pod nothing is rejected")
            .given(nobody(at, UDP))
            .packet(PodEgress, udp(pod_client, cluster))
            .left_alone(PacketPassed),
        row("towards a pod nothing is dropped, not even what is malformed and for a VIP")
            .given(local(at, UDP))
            .packet(PodEgress, udp(client, frontend).transport_bytes(4, &[0, 7]))
            .left_alone(PacketPassed),
        row("another port of an address without flags is whoever's the address is")
            .given(local(at, TCP).address(frontend.0.into(), 0))
            .packet(NodeIngress, tcp(client, (frontend.0, 81)).syn())
            .left_alone(PacketPassed),
        row("a port of the node's that is no node port is the stack's")
            .given(local(at, TCP))
            .packet(NodeIngress, tcp(client, (at.node, 22)).syn())
            .left_alone(PacketPassed),
        row("a node port of another protocol is the stack's")
            .given(local(at, TCP))
            .packet(NodeIngress, udp(client, (at.node, NODE_PORT)))
            .left_alone(PacketPassed),
        row("a node port is none at addresses of services")
            .given(local(at, TCP))
            .packet(NodeIngress, tcp(client, (at.load_balancer, NODE_PORT)).syn())
            .answered(
                RejectedUnknownPort,
                reset((at.load_balancer, NODE_PORT), client, 0, Some(0x1000_0002)),
            ),
        row("a node port is none at addresses of the node that ADDRESSES does not have")
            .given(local(at, TCP).without(|entry| {
                matches!(entry, Entry::Address(_, address_flags::NODE))
            }))
            .packet(NodeIngress, tcp(client, (at.node, NODE_PORT)).syn())
            .left_alone(PacketPassed),
        row("a frame for another host, which a device that takes in everything shows, is that one's")
            .given(local(at, TCP))
            .packet(NodeIngress, tcp(client, frontend).syn().link([2, 0, 0, 0, 0, 9], crate::test_node::PEER_LINK))
            .left_alone(PacketPassed)
            .packet(NodeIngress, tcp(client, (frontend.0, 81)).syn().link([2, 0, 0, 0, 0, 9], crate::test_node::PEER_LINK))
            .left_alone(PacketPassed),
        row("node ports answer at loopback to sockets alone, never to packets")
            .given(local(at, TCP).address(loopback.into(), address_flags::NODE))
            .packet(NodeIngress, tcp(client, (loopback, NODE_PORT)).syn())
            .left_alone(PacketPassed),
        row("the unspecified address is the key of node ports, and no destination")
            .given(local(at, TCP))
            .packet(PodIngress, tcp(pod_client, (unspecified(at), NODE_PORT)).syn())
            .left_alone(PacketPassed),
        row("the unspecified address is no destination, even if ADDRESSES has it")
            .given(local(at, TCP).address(unspecified(at).into(), address_flags::NODE))
            .packet(NodeEgress, tcp((at.node, 42_000), (unspecified(at), NODE_PORT)).syn())
            .left_alone(PacketPassed),
        row("an Ethernet frame that is not IP is left alone")
            .given(local(at, TCP))
            .packet(NodeIngress, tcp(client, frontend).syn().ether_type(0x0806))
            .left_alone(PacketPassed),
        row("what is of a flow that is not here is the next node's: a remote backend's reply passes to the pod")
            .given(remote(at, TCP))
            .packet(NodeIngress, tcp(far, pod_client).ack())
            .left_alone(PacketPassed),
    ];
    for hook in [NodeIngress, NodeEgress, PodIngress, PodEgress] {
        rows.push(
            row(format!(
                "at {hook}, maps of another version are not read, and nothing is counted"
            ))
            .given(local(at, TCP).meta(outdated))
            .packet(hook, tcp(client, frontend).syn())
            .ignored(),
        );
    }
    rows
}
