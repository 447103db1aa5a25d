//! IPv4 options and IPv6 extension headers.

use super::prelude::*;

pub(super) fn v4() -> Vec<Row> {
    let at = &crate::test_node::V4;
    let Ends {
        client,
        frontend,
        node_port,
        pod,
        far,
        masked,
        ..
    } = ends(at);
    let syn = |to, bytes: &[u8]| tcp(client, to).syn().option(bytes);
    let opened = connection(TCP, [client, frontend], [client, pod]).seen(OPEN);
    let mut rows = Vec::new();
    for (name, bytes) in [
        ("no operation", option::NOTHING.as_slice()),
        ("a router alert", &option::ROUTER_ALERT),
        ("record route", &option::RECORD_ROUTE),
        ("an end of options, with anything behind it,", &[0, 0x83, 1, 1]),
    ] {
        rows.push(
            row(format!("{name} stays in the header"))
                .given(local(at, TCP))
                .packet(NodeIngress, syn(frontend, bytes))
                .passed_on(FlowOpened, tcp(client, pod).syn().option(bytes))
                .leaves([opened]),
        );
    }
    rows.push(
        row("options stay where the packet is routed, too")
            .given(remote(at, TCP))
            .packet(NodeIngress, syn(frontend, &option::RECORD_ROUTE))
            .routed(
                FlowOpened,
                tcp(masked, far).syn().option(&option::RECORD_ROUTE).hops(63),
            )
            .leaves([connection(TCP, [client, frontend], [masked, far]).seen(OPEN)]),
    );
    for (name, bytes) in [
        ("a loose source route", option::LOOSE_ROUTE.as_slice()),
        ("a strict source route", &option::STRICT_ROUTE),
        (
            "a source route behind other options",
            &[1, 1, 0x83, 7, 4, 192, 0, 2, 77, 1, 1, 1],
        ),
    ] {
        rows.extend([
            row(format!("{name} is not followed into a service"))
                .given(local(at, TCP))
                .packet(NodeIngress, syn(frontend, bytes))
                .dropped(DroppedSourceRoute),
            row(format!("{name} is the stack's matter at the node's own address"))
                .given(local(at, TCP))
                .packet(NodeIngress, syn(node_port, bytes))
                .left_alone(PacketPassed),
        ]);
    }
    for (name, bytes) in [
        (
            "an option with a length that does not hold itself",
            option::TOO_SHORT,
        ),
        ("an option that goes on beyond the header", option::TOO_LONG),
    ] {
        rows.extend([
            row(format!("{name} is malformed"))
                .given(local(at, TCP))
                .packet(NodeIngress, syn(frontend, &bytes))
                .dropped(DroppedMalformed),
            row(format!("{name} is left alone on its way to anybody else"))
                .given(local(at, TCP))
                .packet(NodeIngress, syn(pod, &bytes))
                .left_alone(PacketPassed),
        ]);
    }
    rows.push(
        row("an option whose length is cut off by the end of the header is malformed")
            .given(local(at, TCP))
            .packet(NodeIngress, syn(frontend, &[1, 1, 1, 7]))
            .dropped(DroppedMalformed),
    );
    rows
}

pub(super) fn v6() -> Vec<Row> {
    let at = &crate::test_node::V6;
    let Ends {
        client,
        frontend,
        node_port,
        pod,
        far,
        masked,
        ..
    } = ends(at);
    let with =
        |packet: Packet, extensions: &[Extension]| extensions.iter().cloned().fold(packet, Packet::extension);
    let syn = |to, extensions: &[Extension]| with(tcp(client, to).syn(), extensions);
    let opened = connection(TCP, [client, frontend], [client, pod]).seen(OPEN);
    let mut rows = Vec::new();
    let six = [
        Extension::HopByHop(1),
        Extension::Destination(1),
        Extension::Routing(2, 0),
        Extension::Authentication,
        Extension::Destination(3),
        Extension::Destination(1),
    ];
    for (name, extensions) in [
        ("a hop-by-hop header", &[Extension::HopByHop(1)] as &[Extension]),
        ("a long destination options header", &[Extension::Destination(8)]),
        (
            "a routing header whose segments have all been visited",
            &[Extension::Routing(2, 0)],
        ),
        ("an authentication header", &[Extension::Authentication]),
        ("six extension headers", &six),
    ] {
        rows.push(
            row(format!("what is behind {name} is found"))
                .given(local(at, TCP))
                .packet(NodeIngress, syn(frontend, extensions))
                .passed_on(FlowOpened, with(tcp(client, pod).syn(), extensions))
                .leaves([opened]),
        );
    }
    rows.push(
        row("extension headers stay where the packet is routed, too")
            .given(remote(at, TCP))
            .packet(NodeIngress, syn(frontend, &six))
            .routed(FlowOpened, with(tcp(masked, far).syn(), &six).hops(63))
            .leaves([connection(TCP, [client, frontend], [masked, far]).seen(OPEN)]),
    );
    let seven = [&six[..], &[Extension::Destination(1)]].concat();
    for (name, packet) in [
        (
            "more than six extension headers",
            &(|to| syn(to, &seven)) as &dyn Fn(End) -> Packet,
        ),
        ("an extension header that goes on beyond the packet", &|to| {
            syn(to, &[Extension::Destination(1)]).network_bytes(41, &[9])
        }),
        ("an extension header of which two bytes are there", &|to| {
            syn(to, &[Extension::Destination(1)]).network_bytes(4, &[0, 2])
        }),
        ("a jumbo payload", &|to| {
            syn(to, &[Extension::Jumbo(70_000)]).network_bytes(4, &[0, 0])
        }),
    ] {
        rows.extend([
            row(format!("{name} is malformed"))
                .given(local(at, TCP))
                .packet(NodeIngress, packet(frontend))
                .dropped(DroppedMalformed),
            row(format!("{name} is the stack's, at the node's own address"))
                .given(local(at, TCP))
                .packet(NodeIngress, packet(node_port))
                .left_alone(PacketPassed),
        ]);
    }
    for (name, header) in [
        (
            "a routing header of type 0, even if all its segments have been visited,",
            Extension::Routing(0, 0),
        ),
        ("a routing header of type 0", Extension::Routing(0, 1)),
        ("a routing header with segments left", Extension::Routing(2, 1)),
    ] {
        rows.extend([
            row(format!("{name} is not followed into a service"))
                .given(local(at, TCP))
                .packet(NodeIngress, syn(frontend, std::slice::from_ref(&header)))
                .dropped(DroppedSourceRoute),
            row(format!("{name} is the stack's matter at the node's own address"))
                .given(local(at, TCP))
                .packet(NodeIngress, syn(node_port, &[header]))
                .left_alone(PacketPassed),
        ]);
    }
    rows.push(
        row("what is behind a header that nobody knows is no service's")
            .given(local(at, TCP))
            .packet(NodeIngress, syn(frontend, &[Extension::Unknown(253)]))
            .dropped(DroppedProtocol),
    );
    let established = opened.seen(OPEN | ANSWER | ESTABLISHED);
    let merged = |to| {
        let segment = tcp(client, to).ack().data(2000).extension(Extension::Jumbo(2028));
        segment.network_bytes(4, &[0, 0])
    };
    // A fragment header, and behind it destination options and a whole segment.
    let behind = |to| {
        let segment = tcp(client, to).syn().data(16).network().split_off(40);
        let headers = [60, 0, 0, 1, 0, 0, 0x77, 0xaa, TCP, 0, 1, 4, 0, 0, 0, 0];
        other(client.0, to.0, 44, &[&headers, segment.as_slice()].concat())
    };
    rows.extend([
        row("what is merged may have a jumbo payload: then it is as long as it is")
            .given(local(at, TCP).connection(established))
            .packet(NodeIngress, merged(frontend))
            .segments(1000)
            .passed_on(FlowForwarded, merged(pod))
            .still_wrong()
            .leaves([established]),
        row("a hop-by-hop header behind others is a protocol that no service has")
            .given(local(at, TCP))
            .packet(
                NodeIngress,
                syn(frontend, &[Extension::Destination(1), Extension::HopByHop(1)]),
            )
            .dropped(DroppedProtocol),
        row("extension headers behind the fragment header are looked behind")
            .given(local(at, TCP))
            .packet(NodeIngress, behind(frontend))
            .passed_on(FlowOpened, behind(pod))
            .leaves([opened])
            .notes(super::fragments::noted(TCP, client, frontend, 0x77aa, 0)),
    ]);
    rows
}
