//! Which slot: Maglev's; and slots and backends that are not there.

use lb_abi::{BackendId, frontend_flags::MAGLEV};

use super::prelude::*;
use crate::maglev;

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        frontend,
        cluster,
        pod_client,
        node_client,
        pod,
        ..
    } = ends(at);
    let syn = || tcp(client, frontend).syn();
    let mut rows = Vec::new();
    // Seven backends, each with a slot and a port of its own.
    let table: [BackendId; 7] = [3, 1, 4, 7, 5, 2, 6];
    let backend = |id: BackendId| (at.pod_a, 8000 + id as u16);
    let all = |protocol| {
        let given = flags(local(at, protocol), at, protocol, MAGLEV).service(SERVICE, &table);
        (1..=7).fold(given, |given, id| given.local_backend(id, backend(id), protocol))
    };
    for port in [40_000, 40_001, 40_002, 40_003] {
        let client = (at.client, port);
        let id = table[maglev::slot(TCP, client, frontend, table.len())];
        rows.push(
            row(format!(
                "Maglev: a connection from port {port} goes to the backend of its hash's slot"
            ))
            .given(all(TCP))
            .packet(NodeIngress, tcp(client, frontend).syn())
            .passed_on(FlowOpened, tcp(client, backend(id)).syn())
            .counted_for(SERVICE, id)
            .leaves([connection(TCP, [client, frontend], [client, backend(id)])
                .seen(OPEN)
                .by(SERVICE, id)]),
        );
    }
    let id = table[maglev::slot(UDP, client, frontend, table.len())];
    rows.push(
        row("Maglev: a datagram goes to the backend of its hash's slot, which is of its protocol, too")
            .given(all(UDP))
            .packet(NodeIngress, udp(client, frontend))
            .passed_on(FlowOpened, udp(client, backend(id)))
            .counted_for(SERVICE, id)
            .leaves([connection(UDP, [client, frontend], [client, backend(id)]).by(SERVICE, id)]),
    );
    let id = table[maglev::slot(TCP, client, frontend, table.len())];
    rows.push(
        row("Maglev: the middle of a connection that another node has had goes on to the same backend")
            .given(all(TCP))
            .packet(NodeIngress, tcp(client, frontend).ack().data(9))
            .passed_on(FlowOpened, tcp(client, backend(id)).ack().data(9))
            .counted_for(SERVICE, id)
            .leaves([connection(TCP, [client, frontend], [client, backend(id)])
                .by(SERVICE, id)
                .seen(ESTABLISHED)]),
    );
    let id = table[maglev::slot(SCTP, client, frontend, table.len())];
    rows.extend([
        row("Maglev: the middle of an association goes on to the same backend")
            .given(all(SCTP))
            .packet(NodeIngress, sctp(client, frontend, DATA))
            .passed_on(FlowOpened, sctp(client, backend(id), DATA))
            .counted_for(SERVICE, id)
            .leaves([connection(SCTP, [client, frontend], [client, backend(id)])
                .by(SERVICE, id)
                .seen(ESTABLISHED)]),
        row("Maglev: a RST of no flow is nobody's")
            .given(all(TCP))
            .packet(NodeIngress, tcp(client, frontend).rst())
            .dropped(DroppedNoFlow),
    ]);
    let without = |matches: &dyn Fn(&Entry) -> bool| local(at, TCP).without(|entry| matches(entry));
    let holes: [(&str, Given); 4] = [
        (
            "service port is not there",
            without(&|entry| matches!(entry, Entry::Service(..))),
        ),
        (
            "slots are not there",
            without(&|entry| matches!(entry, Entry::Slot(..))),
        ),
        (
            "slots are of another generation",
            local(at, TCP).with(Entry::Service(
                SERVICE,
                Service {
                    generation: 2,
                    slots: 1,
                },
            )),
        ),
        (
            "backend is not there",
            without(&|entry| matches!(entry, Entry::Backend(..))),
        ),
    ];
    for (what, given) in holes {
        rows.extend([
            row(format!(
                "a frontend whose {what}: dropped, and sent nowhere instead"
            ))
            .given(given.clone())
            .packet(NodeIngress, syn())
            .dropped(DroppedHole),
            row(format!("a frontend whose {what}, for a pod: dropped"))
                .given(given.clone())
                .packet(PodIngress, tcp(pod_client, cluster).syn())
                .dropped(DroppedHole),
            row(format!("a frontend whose {what}, for the node: dropped"))
                .given(given)
                .packet(NodeEgress, tcp(node_client, cluster).syn())
                .dropped(DroppedHole),
        ]);
    }
    rows.push(
        row("of two generations the one that SERVICES has is taken")
            .given(
                local(at, TCP)
                    .with(Entry::Service(
                        SERVICE,
                        Service {
                            generation: 2,
                            slots: 1,
                        },
                    ))
                    .with(Entry::Slot(
                        SlotKey {
                            service: SERVICE,
                            generation: 2,
                            index: 0,
                        },
                        2,
                    ))
                    .local_backend(2, (pod.0, 8082), TCP),
            )
            .packet(NodeIngress, syn())
            .passed_on(FlowOpened, tcp(client, (pod.0, 8082)).syn())
            .counted_for(SERVICE, 2)
            .leaves([connection(TCP, [client, frontend], [client, (pod.0, 8082)])
                .seen(OPEN)
                .by(SERVICE, 2)]),
    );
    rows
}
