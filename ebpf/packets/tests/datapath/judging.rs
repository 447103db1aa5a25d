//! Rows with a wrong expectation do not hold: every part of a row is compared.

use lb_abi::{Counter, Frontend, UDP, seen};
use lb_loader::DeviceHook::NodeIngress;
use lb_packets::{
    build::{End, udp},
    stage::{Stage, StageError},
    table::{BACKEND, Entry, Given, Row, SERVICE, Verdict, connection, row},
    test_node::{TestNode, V4},
};

const CLIENT: End = (V4.client, 40_000);
const FRONTEND: End = (V4.load_balancer, 80);
const BACKEND_END: End = (V4.pod_a, 8080);

fn given() -> Given {
    let frontend = Frontend {
        internal: SERVICE,
        external: SERVICE,
        flags: 0,
        affinity_seconds: 600,
    };
    Given::node(&V4)
        .frontend(FRONTEND, UDP, frontend)
        .behind(true, BACKEND_END, UDP)
}

fn noted() -> Entry {
    let key = lb_abi::AffinityKey {
        service: SERVICE,
        kind: 0,
        client: V4.client.into(),
    };
    Entry::Affinity(key, BACKEND, 0)
}

/// A row that holds.
fn right() -> Row {
    row("a datagram goes to its backend")
        .given(given())
        .packet(NodeIngress, udp(CLIENT, FRONTEND))
        .passed_on(Counter::FlowOpened, udp(CLIENT, BACKEND_END))
        .leaves([connection(UDP, [CLIENT, FRONTEND], [CLIENT, BACKEND_END])])
        .notes(noted())
}

/// The same, with something that is not so.
fn wrong(change: impl FnOnce(&mut Row)) -> Row {
    let mut row = right();
    change(&mut row);
    row
}

#[test]
fn whatever_a_row_says_is_looked_at() {
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    let _node = TestNode::enter().expect("a node");
    let mut stage = Stage::new().expect("the programs");
    stage.play(&right()).expect("a row that holds");
    let opened = connection(UDP, [CLIENT, FRONTEND], [CLIENT, BACKEND_END]);
    let elsewhere = (V4.pod_b, 8080);
    let rows = [
        ("verdict", wrong(|row| row.steps[0].verdict = Verdict::Shot)),
        ("verdict", wrong(|row| row.steps[0].verdict = Verdict::Redirect)),
        (
            "counters",
            wrong(|row| row.steps[0].counter = Some(Counter::FlowForwarded)),
        ),
        ("counters", wrong(|row| row.steps[0].counter = None)),
        (
            "packet out",
            wrong(|row| row.steps[0].out = udp(CLIENT, elsewhere)),
        ),
        (
            "packet out",
            wrong(|row| row.steps[0].out = udp(CLIENT, BACKEND_END).hops(63)),
        ),
        (
            "packet out",
            wrong(|row| row.steps[0].out = udp(CLIENT, BACKEND_END).padded(1)),
        ),
        ("traffic", wrong(|row| row.steps[0].traffic = (2, BACKEND))),
        ("traffic", wrong(|row| row.steps[0].traffic = (SERVICE, 2))),
        ("CONNTRACK", wrong(|row| row.connections = None)),
        (
            "CONNTRACK",
            wrong(|row| row.connections = Some(vec![opened.without_reply()])),
        ),
        (
            "CONNTRACK",
            wrong(|row| row.connections = Some(vec![opened.seen(seen::ANSWER)])),
        ),
        (
            "CONNTRACK",
            wrong(|row| row.connections = Some(vec![opened.age(2)])),
        ),
        (
            "CONNTRACK",
            wrong(|row| row.connections = Some(vec![opened.by(SERVICE, 2)])),
        ),
        (
            "CONNTRACK",
            wrong(|row| row.connections = Some(vec![opened.by(2, BACKEND)])),
        ),
        (
            "CONNTRACK",
            wrong(|row| {
                let mut masked = opened;
                masked.to.source_port = lb_abi::Port::new(1);
                row.connections = Some(vec![masked]);
            }),
        ),
        ("AFFINITY", wrong(|row| row.noted.clear())),
        (
            "FRAGMENTS",
            wrong(|row| {
                let key = lb_abi::FragmentKey {
                    source: V4.client.into(),
                    destination: V4.load_balancer.into(),
                    id: [0; 4],
                    protocol: UDP,
                    pad: [0; 3],
                };
                let ports = [CLIENT.1, FRONTEND.1].map(lb_abi::Port::new);
                row.noted.push(Entry::Fragment(key, ports, 0, 0));
            }),
        ),
    ];
    for (what, row) in rows {
        match stage.play(&row) {
            Err(StageError::Mismatch(mismatch)) => {
                assert!(
                    mismatch.to_string().contains(&format!("  {what}")),
                    "{what}: {mismatch}"
                );
            }
            other => panic!("{what} of {row:?}: {other:?}"),
        }
    }
}
