//! What takes more than one packet to be seen: which ports are given out, how choices spread, how often is answered.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lb_abi::{Counter, Frontend, TCP, UDP, frontend_flags, seen::OPEN};
use lb_loader::DeviceHook;
use lb_packets::{
    build::{End, Packet, tcp, udp},
    check::ends,
    maglev,
    stage::{Stage, StepResult},
    table::{Given, SERVICE, Step, connection, row},
    test_node::{Addresses, TestNode, V4, V6},
};
use nix::{
    sched::{CpuSet, sched_getcpu, sched_setaffinity},
    unistd::Pid,
};

/// The first of the ports that are allocated here.
const FIRST: u16 = 61_000;
/// How many: half of what is tried for one connection, so that every free one is found.
const PORTS: u16 = 64;

const FRONTEND: Frontend = Frontend {
    internal: SERVICE,
    external: SERVICE,
    flags: 0,
    affinity_seconds: 0,
};

/// For each family, on programs and on a test node of its own.
fn in_both_families(body: impl Fn(&mut Stage, &Addresses)) {
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    let _node = TestNode::enter().expect("a node");
    let mut stage = Stage::new().expect("the programs");
    for at in [&V4, &V6] {
        body(&mut stage, at);
    }
}

fn frontend(at: &Addresses) -> End {
    (at.load_balancer, 80)
}

/// A packet from outside.
fn come(stage: &Stage, packet: Packet) -> StepResult {
    let row = row("").packet(DeviceHook::NodeIngress, packet);
    let [step]: &[Step; 1] = row.steps.first_chunk().expect("one");
    stage.see(step, &step.packet.bytes()).expect("a run")
}

fn source(seen: &StepResult) -> (IpAddr, Option<u16>) {
    ends(&seen.packet).expect("a packet that is whole").source
}

fn destination(seen: &StepResult) -> (IpAddr, Option<u16>) {
    ends(&seen.packet).expect("a packet that is whole").destination
}

#[test]
fn no_port_is_given_out_twice_and_none_is_left_over() {
    in_both_families(|stage, at| {
        let given = Given::node(at)
            .frontend(frontend(at), TCP, FRONTEND)
            .behind(false, (at.remote, 8080), TCP)
            .ports(FIRST, FIRST + PORTS - 1);
        let _scene = stage.set(&given).expect("maps");
        let mut given_out = BTreeSet::new();
        for client in 0..PORTS {
            let seen = come(stage, tcp((at.client, 1024 + client), frontend(at)).syn());
            assert_eq!(seen.counted, [Counter::FlowOpened], "client {client}");
            let (address, port) = source(&seen);
            assert_eq!(address, at.node);
            assert!(given_out.insert(port), "{port:?} was given out twice");
        }
        let all: BTreeSet<Option<u16>> = (FIRST..FIRST + PORTS).map(Some).collect();
        assert_eq!(given_out, all);
        for client in PORTS..PORTS + 8 {
            let seen = come(stage, tcp((at.client, 1024 + client), frontend(at)).syn());
            assert_eq!(seen.counted, [Counter::DroppedPortsExhausted], "client {client}");
        }
    });
}

/// Of 256 ports the first 200 are in use. A search that begins with one of the first 73 finds none in 128 tries: out of 40
/// connections, all but never none, and never all.
#[test]
fn no_more_ports_are_tried_than_the_bound_says() {
    const ALL: u16 = 256;
    const IN_USE: u16 = 200;
    const CLIENTS: u16 = 40;
    in_both_families(|stage, at| {
        let far = (at.remote, 8080);
        let mut given = Given::node(at)
            .frontend(frontend(at), TCP, FRONTEND)
            .behind(false, far, TCP)
            .ports(FIRST, FIRST + ALL - 1);
        for number in 0..IN_USE {
            let ends = [(at.stranger, 1024 + number), frontend(at)];
            given = given.connection(connection(TCP, ends, [(at.node, FIRST + number), far]).seen(OPEN));
        }
        let _scene = stage.set(&given).expect("maps");
        let (mut given_out, mut exhausted) = (BTreeSet::new(), 0);
        for client in 0..CLIENTS {
            let seen = come(stage, tcp((at.client, 1024 + client), frontend(at)).syn());
            match seen.counted[..] {
                [Counter::FlowOpened] => {
                    let port = source(&seen).1.expect("a port");
                    assert!((FIRST + IN_USE..FIRST + ALL).contains(&port), "{port} was in use");
                    assert!(given_out.insert(port), "{port} was given out twice");
                }
                [Counter::DroppedPortsExhausted] => exhausted += 1,
                ref other => panic!("{other:?}"),
            }
        }
        assert!(
            exhausted > 0 && !given_out.is_empty(),
            "{exhausted} of {CLIENTS} found none"
        );
    });
}

/// The tables choose by hand-picked connections; this by many.
#[test]
fn maglev_takes_the_slot_of_the_documented_hash() {
    const SLOTS: u32 = 251;
    const CONNECTIONS: u16 = 2000;
    in_both_families(|stage, at| {
        let maglev = Frontend {
            flags: frontend_flags::MAGLEV,
            ..FRONTEND
        };
        let ids: Vec<u32> = (1..=SLOTS).collect();
        let backend = |id: u32| (at.pod_a, 10_000 + id as u16);
        let mut given = Given::node(at)
            .frontend(frontend(at), UDP, maglev)
            .service(SERVICE, &ids);
        for &id in &ids {
            given = given.local_backend(id, backend(id), UDP);
        }
        let _scene = stage.set(&given).expect("maps");
        for number in 0..CONNECTIONS {
            let host = if number % 2 == 0 { at.client } else { at.stranger };
            let client = (host, number.wrapping_mul(31).max(1));
            let seen = come(stage, udp(client, frontend(at)));
            let slot = maglev::slot(UDP, client, frontend(at), SLOTS as usize);
            let (address, port) = backend(ids[slot]);
            assert_eq!(destination(&seen), (address, Some(port)), "{client:?}");
        }
    });
}

/// 3000 choices among three: 1000 each, with a standard deviation of 26. A fair choice is beyond 800 and 1200 once in
/// 10¹³ runs.
#[test]
fn random_choices_are_spread_over_all_backends() {
    in_both_families(|stage, at| {
        let mut given = Given::node(at)
            .frontend(frontend(at), UDP, FRONTEND)
            .service(SERVICE, &[1, 2, 3]);
        for id in 1..=3 {
            given = given.local_backend(id, (at.pod_a, 8000 + id as u16), UDP);
        }
        let _scene = stage.set(&given).expect("maps");
        let mut chosen: BTreeMap<Option<u16>, u32> = BTreeMap::new();
        for client in 0..3000 {
            let seen = come(stage, udp((at.client, 1024 + client), frontend(at)));
            assert_eq!(seen.counted, [Counter::FlowOpened]);
            *chosen.entry(destination(&seen).1).or_default() += 1;
        }
        assert_eq!(
            chosen.keys().copied().collect::<Vec<_>>(),
            [Some(8001), Some(8002), Some(8003)]
        );
        for (port, times) in chosen {
            assert!((800..=1200).contains(&times), "{port:?}: {times} of 3000");
        }
    });
}

#[test]
fn no_more_is_answered_in_a_second_than_the_limit_says() {
    const LIMIT: u32 = 5;
    const PACKETS: u32 = 200;
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    stay_on_this_processor();
    in_both_families(|stage, at| {
        let mut given = Given::node(at)
            .frontend(frontend(at), TCP, FRONTEND)
            .service(SERVICE, &[]);
        given.config.rejects_per_second = LIMIT;
        let scene = stage.set(&given).expect("maps");
        let (mut answered, mut limited) = (0, 0);
        for client in 0..PACKETS {
            let port = 1024 + client as u16;
            let seen = come(stage, tcp((at.client, port), frontend(at)).syn());
            match seen.counted[..] {
                [Counter::RejectedNoBackend] => answered += 1,
                [Counter::DroppedRejectLimit] => {
                    assert_eq!(seen.verdict, 2, "dropped");
                    limited += 1;
                }
                ref other => panic!("{other:?}"),
            }
        }
        // A second may end at any time, and the next begins with a limit of its own.
        let seconds = scene.elapsed() + 1;
        assert_eq!(answered + limited, PACKETS);
        assert!(answered <= LIMIT * seconds, "{answered} answers in {seconds} s");
        assert!(limited >= PACKETS.saturating_sub(LIMIT * seconds));
        assert!(
            seconds > PACKETS / LIMIT || limited > 0,
            "the limit was never reached"
        );
    });
}

/// Limits are each processor's own.
fn stay_on_this_processor() {
    let mut here = CpuSet::new();
    here.set(sched_getcpu().expect("a processor"))
        .expect("that there is");
    sched_setaffinity(Pid::from_raw(0), &here).expect("to stay on it");
}
