//! Session affinity: a client is sent to where it was sent last.

use lb_abi::{Address, AffinityKey, BackendId, ServiceId};

use super::prelude::*;

/// For how long, in these tables.
const SECONDS: u32 = 600;

fn sent(service: ServiceId, client: End, backend: BackendId, age: i32) -> Entry {
    let key = AffinityKey {
        service,
        kind: 0,
        client: Address::from(client.0),
    };
    Entry::Affinity(key, backend, age)
}

pub(super) fn rows(at: &Addresses) -> Vec<Row> {
    let Ends {
        client,
        stranger,
        frontend,
        pod_client,
        pod,
        other_pod,
        ..
    } = ends(at);
    let affine = Frontend {
        affinity_seconds: SECONDS,
        ..FRONTEND
    };
    // One slot, so that only affinity leads to the second backend.
    let member = Entry::Slot(SlotKey::member(SERVICE, 1, 2), 2);
    let given = || {
        local(at, TCP)
            .frontend(frontend, TCP, affine)
            .local_backend(2, other_pod, TCP)
            .with(member)
    };
    let to_first = connection(TCP, [client, frontend], [client, pod]).seen(OPEN);
    let to_second = connection(TCP, [client, frontend], [client, other_pod])
        .seen(OPEN)
        .by(SERVICE, 2);
    let syn = || tcp(client, frontend).syn();
    let first = |row: Row| {
        row.packet(NodeIngress, syn())
            .passed_on(FlowOpened, tcp(client, pod).syn())
            .leaves([to_first])
            .notes(sent(SERVICE, client, BACKEND, 0))
    };
    let second = |row: Row| {
        row.packet(NodeIngress, syn())
            .passed_on(FlowOpened, tcp(client, other_pod).syn())
            .counted_for(SERVICE, 2)
            .leaves([to_second])
            .notes(sent(SERVICE, client, 2, 0))
    };
    let maglev = Frontend {
        flags: frontend_flags::MAGLEV,
        ..affine
    };
    vec![
        first(row("where a new client is sent is noted").given(given())),
        second(
            row("a client that was sent somewhere is sent there again, whatever its slot")
                .given(given().with(sent(SERVICE, client, 2, 100))),
        ),
        second(
            row("a client that comes again in time is sent there").given(given().with(sent(
                SERVICE,
                client,
                2,
                SECONDS as i32 - 5,
            ))),
        ),
        first(
            row("a client that comes again too late is a new one").given(given().with(sent(
                SERVICE,
                client,
                2,
                SECONDS as i32 + 1,
            ))),
        ),
        first(
            row("a client whose backend is not one of this generation's is a new one").given(
                given()
                    .without(|entry| *entry == member)
                    .with(sent(SERVICE, client, 2, 100)),
            ),
        ),
        first(
            row("a client whose backend was one of an earlier generation's is a new one").given(
                given()
                    .without(|entry| *entry == member)
                    .with(Entry::Slot(SlotKey::member(SERVICE, 0, 2), 2))
                    .with(sent(SERVICE, client, 2, 100)),
            ),
        ),
        first(
            row("a client whose backend is gone is a new one").given(
                given()
                    .without(|entry| matches!(entry, Entry::Backend(2, _)))
                    .with(sent(SERVICE, client, 2, 100)),
            ),
        ),
        first(
            row("where another client was sent says nothing")
                .given(given().with(sent(SERVICE, stranger, 2, 100))),
        ),
        first(
            row("where a client was sent for another service says nothing")
                .given(given().with(sent(2, client, 2, 100))),
        ),
        second(
            row("affinity comes before Maglev's slot").given(
                given()
                    .frontend(frontend, TCP, maglev)
                    .with(sent(SERVICE, client, 2, 100)),
            ),
        ),
        second(
            row("where another processor has sent a client a second later counts")
                .given(given().with(sent(SERVICE, client, 2, -1))),
        ),
        row("a pod's affinity is by its address and the service port of its scope")
            .given(
                given()
                    .frontend(
                        frontend,
                        TCP,
                        Frontend {
                            internal: 2,
                            ..affine
                        },
                    )
                    .service(2, &[BACKEND])
                    .with(Entry::Slot(SlotKey::member(2, 1, 2), 2))
                    .with(sent(2, pod_client, 2, 100)),
            )
            .packet(PodIngress, tcp(pod_client, frontend).syn())
            .passed_on(FlowOpened, tcp(pod_client, other_pod).syn())
            .counted_for(2, 2)
            .leaves([connection(TCP, [pod_client, frontend], [pod_client, other_pod])
                .seen(OPEN)
                .by(2, 2)])
            .notes(sent(2, pod_client, 2, 0)),
        row("later packets of a flow do not renew affinity")
            .given(
                given()
                    .connection(to_second.age(5))
                    .with(sent(SERVICE, client, 2, 100)),
            )
            .packet(NodeIngress, tcp(client, frontend).ack())
            .passed_on(FlowForwarded, tcp(client, other_pod).ack())
            .counted_for(SERVICE, 2)
            .leaves([to_second.seen(OPEN | ESTABLISHED)]),
        row("without affinity nothing is noted, and what was noted says nothing")
            .given(
                given()
                    .frontend(frontend, TCP, FRONTEND)
                    .with(sent(SERVICE, client, 2, 100)),
            )
            .packet(NodeIngress, syn())
            .passed_on(FlowOpened, tcp(client, pod).syn())
            .leaves([to_first]),
        row("a client that is not served is not noted")
            .given(nobody(at, TCP).frontend(frontend, TCP, affine))
            .packet(NodeIngress, syn())
            .answered(RejectedNoBackend, reset(frontend, client, 0, Some(0x1000_0002))),
    ]
}
