//! Two processors at once, on the same tuples and the same ports: whatever they do to each other, a port has one owner, and each
//! entry of a flow leads to the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use lb_abi::{Counter, Flow, Frontend, TCP, Tuple, flow_flags, seen};
use lb_loader::{Detached, DeviceHook, Input};
use lb_packets::{
    build::tcp,
    check::ends,
    stage::Stage,
    table::{Given, SERVICE, connection},
    test_node::{Addresses, TestNode, UPLINK, V4, V6},
};
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

const FIRST: u16 = 61_000;
const PORTS: u16 = 64;
/// Clients of each processor: one alone finds ports for all of them, both together do not.
const CLIENTS: u16 = 40;
/// How often it is tried.
const ROUNDS: u16 = 30;

const FRONTEND: Frontend = Frontend {
    internal: SERVICE,
    external: SERVICE,
    flags: 0,
    affinity_seconds: 0,
};

/// Two processors that the test may use; without them it is on record as left out.
fn two_processors() -> Option<[usize; 2]> {
    let test = testing::current();
    if !testing::root_or_skip(&test) {
        return None;
    }
    let allowed = sched_getaffinity(Pid::from_raw(0)).expect("processors");
    let mut set = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false));
    let two = set.next().zip(set.next()).map(|(first, second)| [first, second]);
    if two.is_none() {
        testing::skip(&test, "needs two processors");
    }
    two
}

fn given(at: &Addresses) -> Given {
    Given::node(at)
        .frontend((at.load_balancer, 80), TCP, FRONTEND)
        .behind(false, (at.remote, 8080), TCP)
        .ports(FIRST, FIRST + PORTS - 1)
}

/// A SYN of a client's port.
fn syn(at: &Addresses, port: u16) -> Vec<u8> {
    tcp((at.client, port), (at.load_balancer, 80)).syn().bytes()
}

/// From which port each packet was sent on; `None`: it was dropped.
type Sent = Vec<Option<u16>>;

/// Runs these packets on both processors, packet by packet at the same time.
fn at_once(detached: &Detached, processors: [usize; 2], frames: &[Vec<Vec<u8>>; 2]) -> [Sent; 2] {
    let ready = AtomicUsize::new(0);
    thread::scope(|scope| {
        let ready = &ready;
        let running = [0, 1].map(|which: usize| {
            let frames = &frames[which];
            scope.spawn(move || {
                let mut own = CpuSet::new();
                own.set(processors[which]).expect("a processor");
                sched_setaffinity(Pid::from_raw(0), &own).expect("to stay on it");
                let send = |(index, frame): (usize, &Vec<u8>)| {
                    // Neither is ahead of the other by more than what a processor waits for.
                    ready.fetch_add(1, Ordering::SeqCst);
                    while ready.load(Ordering::SeqCst) < 2 * (index + 1) {
                        std::hint::spin_loop();
                    }
                    let input = Input {
                        packet: frame,
                        ifindex: UPLINK,
                        own: false,
                        gso_size: 0,
                        repeat: 1,
                    };
                    let run = detached.run(DeviceHook::NodeIngress, &input).expect("a run");
                    let sent = run.verdict == 7;
                    sent.then(|| ends(&run.packet).expect("whole").source.1.expect("a port"))
                };
                frames.iter().enumerate().map(send).collect::<Sent>()
            })
        });
        running.map(|thread| thread.join().expect("no panic"))
    })
}

/// Asserts that each entry leads to another one that leads back, and that no port has two owners; returns the owners.
fn whole(detached: &Detached) -> BTreeMap<u16, Tuple> {
    let flows: BTreeMap<Tuple, Flow> = detached
        .maps()
        .conntrack
        .entries()
        .expect("CONNTRACK is read")
        .into_iter()
        .collect();
    let mut owners = BTreeMap::new();
    for (key, flow) in &flows {
        let other = flows.get(&flow.to.inverse());
        let other = other.unwrap_or_else(|| panic!("{key:?} leads to no entry: {flow:?}"));
        assert_eq!(
            other.to.inverse(),
            *key,
            "{flow:?} leads to an entry of another flow"
        );
        assert_ne!(
            flow.flags & flow_flags::REPLY,
            other.flags & flow_flags::REPLY,
            "one of each direction"
        );
        assert_eq!((flow.service, flow.backend), (other.service, other.backend));
        if flow.flags & flow_flags::REPLY == 0 {
            let before = owners.insert(flow.to.source_port.get(), *key);
            assert_eq!(before, None, "two owners of a port");
        }
    }
    owners
}

fn count(detached: &Detached, counter: Counter) -> u64 {
    detached
        .maps()
        .counters()
        .expect("the counters are read")
        .get(counter)
}

/// For each family, again and again; `body` gets the number of the round.
fn rounds(mut body: impl FnMut(&mut Stage, &Addresses, u16)) {
    // Threads are where the one is that has started them.
    let _node = TestNode::enter().expect("a node");
    let mut stage = Stage::new().expect("the programs");
    for at in [&V4, &V6] {
        for round in 0..ROUNDS {
            body(&mut stage, at, round);
        }
    }
}

/// Clients of each, whose ports are all different.
fn different(at: &Addresses, round: u16) -> [Vec<Vec<u8>>; 2] {
    [0, 1].map(|which| {
        let first = 2_000 + round * 2 * CLIENTS + which * CLIENTS;
        (first..first + CLIENTS).map(|port| syn(at, port)).collect()
    })
}

/// Both got what is there, and each port went to one.
fn shared_out(stage: &Stage, processors: [usize; 2], frames: &[Vec<Vec<u8>>; 2]) -> bool {
    let detached = stage.detached();
    let before =
        [Counter::FlowOpened, Counter::DroppedPortsExhausted].map(|counter| count(detached, counter));
    let sent = at_once(detached, processors, frames);
    let owners = whole(detached);
    let given_out: Vec<u16> = sent.iter().flatten().flatten().copied().collect();
    let different: BTreeSet<u16> = given_out.iter().copied().collect();
    assert_eq!(given_out.len(), different.len(), "a port was given out twice");
    assert!(
        different.iter().all(|port| owners.contains_key(port)),
        "{different:?}, {owners:?}"
    );
    let opened = count(detached, Counter::FlowOpened) - before[0];
    let exhausted = count(detached, Counter::DroppedPortsExhausted) - before[1];
    assert_eq!(opened, u64::from(PORTS), "every port is found");
    assert_eq!(given_out.len() as u64, opened);
    assert_eq!(opened + exhausted, u64::from(2 * CLIENTS));
    // One that came after the other would have found a port for each of the first one's clients.
    sent.iter().all(|sent| sent.contains(&None))
}

#[test]
fn a_port_is_given_to_one_of_two_processors() {
    let Some(processors) = two_processors() else {
        return;
    };
    let mut at_once = 0;
    rounds(|stage, at, round| {
        let _scene = stage.set(&given(at)).expect("the maps are filled");
        at_once += u32::from(shared_out(stage, processors, &different(at, round)));
    });
    assert!(at_once > 0, "the processors were never at it at once");
}

#[test]
fn a_port_whose_flow_is_over_is_taken_by_one_of_two_processors() {
    let Some(processors) = two_processors() else {
        return;
    };
    let mut at_once = 0;
    rounds(|stage, at, round| {
        let far = (at.remote, 8080);
        let mut given = given(at);
        for number in 0..PORTS {
            let ends = [(at.stranger, 1_024 + number), (at.load_balancer, 80)];
            let old = connection(TCP, ends, [(at.node, FIRST + number), far]);
            given = given.connection(old.seen(seen::OPEN).age(100));
        }
        let _scene = stage.set(&given).expect("the maps are filled");
        let sent = self::at_once(stage.detached(), processors, &different(at, round));
        // What is left of the old flows leads to entries that are others' now.
        let flows = &stage.detached().maps().conntrack;
        for (key, flow) in flows.entries().expect("CONNTRACK is read") {
            let stale = flow.flags & flow_flags::REPLY == 0 && key.source == at.stranger.into();
            if stale {
                flows.delete(&key).expect("removed");
            }
        }
        let owners = whole(stage.detached());
        let given_out: Vec<u16> = sent.iter().flatten().flatten().copied().collect();
        let different: BTreeSet<u16> = given_out.iter().copied().collect();
        assert_eq!(given_out.len(), different.len(), "a port was given out twice");
        assert_eq!(given_out.len(), usize::from(PORTS), "every port is taken");
        assert!(different.iter().all(|port| owners.contains_key(port)));
        at_once += u32::from(sent.iter().all(|sent| sent.contains(&None)));
    });
    assert!(at_once > 0, "the processors were never at it at once");
}

#[test]
fn one_tuple_on_two_processors_is_one_flow() {
    let Some(processors) = two_processors() else {
        return;
    };
    rounds(|stage, at, round| {
        let given = given(at).ports(FIRST, FIRST + 1_000);
        let _scene = stage.set(&given).expect("the maps are filled");
        let first = 2_000 + round * CLIENTS;
        let frames: Vec<_> = (first..first + CLIENTS).map(|port| syn(at, port)).collect();
        let detached = stage.detached();
        let before = count(detached, Counter::FlowOpened);
        let [one, other] = at_once(detached, processors, &[frames.clone(), frames]);
        for (index, (one, other)) in one.iter().zip(&other).enumerate() {
            assert!(
                one.is_some() && one == other,
                "client {index}: {one:?} and {other:?}"
            );
        }
        let owners = whole(detached);
        assert_eq!(owners.len(), usize::from(CLIENTS), "{owners:?}");
        let opened = count(detached, Counter::FlowOpened) - before;
        assert_eq!(opened, u64::from(CLIENTS), "a flow is opened once");
    });
}
