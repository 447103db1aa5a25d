//! CONNTRACK that is full: the kernel gives up entries that were not used for long, one by one, and what is left of a flow neither sends
//! anything astray nor keeps a new one out.

use std::net::IpAddr;

use lb_abi::{Counter, Frontend, UDP, capacity};
use lb_loader::{DeviceHook, Input};
use lb_packets::{
    build::{Packet, udp},
    check::ends,
    stage::{Stage, StepResult},
    table::{Given, SERVICE, Verdict, row},
    test_node::{Addresses, TestNode, UPLINK, V4, V6},
};

/// Connections, of two entries each: three times what there is room for.
const CONNECTIONS: u32 = capacity::CONNTRACK_LEAST / 2 * 3;
/// The connection that is in use all the while sends one packet for so many others.
const BETWEEN: u32 = 64;
/// How many of the youngest and of the oldest are looked at.
const LOOKED_AT: u32 = 500;

fn number(connection: u32) -> u16 {
    u16::try_from(1_024 + connection).expect("a port")
}

fn see(stage: &Stage, hook: DeviceHook, packet: Packet) -> StepResult {
    let row = row("").packet(hook, packet);
    let step = row.steps.first().expect("one");
    stage.see(step, &step.packet.bytes()).expect("a run")
}

/// A client's packet.
fn ask(stage: &Stage, at: &Addresses, port: u16) -> StepResult {
    see(
        stage,
        DeviceHook::NodeIngress,
        udp((at.client, port), (at.load_balancer, 80)),
    )
}

/// The same, for a flow that is new, without a look at the counters: there are many.
fn open(stage: &Stage, at: &Addresses, port: u16) {
    let frame = udp((at.client, port), (at.load_balancer, 80)).bytes();
    let input = Input {
        packet: &frame,
        ifindex: UPLINK,
        own: false,
        gso_size: 0,
        repeat: 1,
    };
    let run = stage
        .detached()
        .run(DeviceHook::NodeIngress, &input)
        .expect("a run");
    assert_eq!(run.verdict, Verdict::On.number(), "it goes to the pod");
}

/// The source of a backend's answer, once it has passed the node.
fn answer(stage: &Stage, at: &Addresses, port: u16) -> (Vec<Counter>, (IpAddr, Option<u16>)) {
    let backend = (at.pod_a, 8080);
    let seen = see(
        stage,
        DeviceHook::NodeEgress,
        udp(backend, (at.client, port)).back(),
    );
    (seen.counted, ends(&seen.packet).expect("whole").source)
}

#[test]
fn new_flows_take_the_place_of_old_ones_and_what_is_in_use_stays() {
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    let _node = TestNode::enter().expect("a node");
    let mut stage = Stage::new().expect("the programs");
    for at in [&V4, &V6] {
        let frontend = (at.load_balancer, 80);
        let value = Frontend {
            internal: SERVICE,
            external: SERVICE,
            ..Frontend::default()
        };
        let given = Given::node(at)
            .frontend(frontend, UDP, value)
            .behind(true, (at.pod_a, 8080), UDP);
        let _scene = stage.set(&given).expect("maps");
        let lasting = number(CONNECTIONS);
        assert_eq!(ask(&stage, at, lasting).counted, [Counter::FlowOpened]);
        let opened = || {
            stage
                .detached()
                .maps()
                .counters()
                .expect("counters")
                .get(Counter::FlowOpened)
        };
        let before = opened();
        for connection in 0..CONNECTIONS {
            open(&stage, at, number(connection));
            if connection % BETWEEN == 0 {
                let seen = ask(&stage, at, lasting);
                assert_eq!(
                    seen.counted,
                    [Counter::FlowForwarded],
                    "after {connection} others"
                );
                let answer = answer(&stage, at, lasting);
                assert_eq!(
                    answer,
                    (vec![Counter::FlowReplied], (at.load_balancer, Some(80))),
                    "after {connection} others"
                );
            }
        }
        // A full map is no reason to drop anything.
        assert_eq!(opened() - before, u64::from(CONNECTIONS));
        let held = stage
            .detached()
            .maps()
            .conntrack
            .entries()
            .expect("CONNTRACK is read")
            .len();
        assert!(held <= capacity::CONNTRACK_LEAST as usize, "{held} entries");
        // Answers first: what is asked may write an entry again.
        let mut kept = 0;
        for connection in CONNECTIONS - LOOKED_AT..CONNECTIONS {
            let (counted, source) = answer(&stage, at, number(connection));
            kept += u32::from(counted == [Counter::FlowReplied] && source == (at.load_balancer, Some(80)));
        }
        assert!(
            kept >= LOOKED_AT * 9 / 10,
            "of the youngest {LOOKED_AT} only {kept} were left"
        );
        let mut gone = 0;
        for connection in 0..LOOKED_AT {
            match answer(&stage, at, number(connection)) {
                // One of its entries is left, and writes the other again.
                (counted, source) if counted == [Counter::FlowReplied] => {
                    assert_eq!(source, (at.load_balancer, Some(80)), "connection {connection}");
                }
                (counted, source) => {
                    assert_eq!(counted, [Counter::PacketPassed], "connection {connection}");
                    assert_eq!(source, (at.pod_a, Some(8080)), "it is as it came");
                    gone += 1;
                }
            }
        }
        assert!(
            gone >= LOOKED_AT * 9 / 10,
            "of the oldest {LOOKED_AT} only {gone} were given up"
        );
        println!("{held} entries; of the youngest {LOOKED_AT} {kept} were left, of the oldest {gone} gone");
    }
}
