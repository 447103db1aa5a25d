//! Packets while the backends of a service are changed a thousand times: none finds a hole, or a backend that is in
//! neither set.
//!
//! One thread changes sets in the order that the maps ask for: backends, slots, the switch, a barrier, and only then the
//! old slots and backends go. Others send the first packets of new flows, of both families. Sets have no backend in
//! common, so that a packet that saw parts of two would be seen.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use lb_abi::{
    Address, Backend, BackendId, Config, Counter, Frontend, FrontendKey, Port, Service, ServiceId, SlotKey,
    TCP, address_flags,
};
use lb_loader::{Detached, DeviceHook, Input};
use lb_packets::{
    build::tcp,
    model::{Read, read},
    table::Verdict,
    test_node::{Addresses, POD_A, TestNode, UPLINK, V4, V6},
};

/// Changes of the backends.
const CHANGES: u32 = 1_000;
/// Backends of a set.
const MEMBERS: u32 = 4;
/// Ids of backends are used again after so many sets.
const SETS: u32 = 8;
/// Changes in a wrong order that are tried, at most, before the test fails as one that finds nothing. A few microseconds lie
/// between the switch and what must not come so early, or so late: a packet must be held up within them, as an
/// interrupt does.
const TRIES: u32 = 1_000_000;
/// Packets that one system call sends, where what becomes of each is not looked at.
const REPEAT: u32 = 1_000;

const PORT: u16 = 80;
const FAMILIES: [(ServiceId, &Addresses); 2] = [(1, &V4), (2, &V6)];

/// In which order a change is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    /// As it has to be.
    Right,
    /// Old slots go at once, before any barrier.
    SlotsBeforeBarrier,
    /// The new backends come after the switch.
    BackendsAfterSwitch,
}

/// The port of a backend shows which set it is of.
fn backend(service: ServiceId, set: u32, member: u32) -> (BackendId, Backend) {
    let at = FAMILIES[service as usize - 1].1;
    let id = (service - 1) * SETS * MEMBERS + (set % SETS) * MEMBERS + member + 1;
    let backend = Backend {
        address: at.pod_b.into(),
        port: Port::new(port(set, member)),
        protocol: TCP,
        flags: 0,
    };
    (id, backend)
}

/// Sets have 10 ports each, and come again after 6000.
const fn port(set: u32, member: u32) -> u16 {
    (5_000 + set % 6_000 * 10 + member) as u16
}

fn slots(service: ServiceId, set: u32) -> impl Iterator<Item = (SlotKey, BackendId)> {
    (0..MEMBERS).map(move |member| {
        let key = SlotKey {
            service,
            generation: set + 1,
            index: member,
        };
        (key, backend(service, set, member).0)
    })
}

/// The datapath, and which sets packets may find.
struct Stage {
    detached: Detached,
    /// The set that was switched to last is this one or the next: what is permitted is what was at the beginning of a
    /// packet, up to what is at its end.
    switched: AtomicU64,
    switching: AtomicU64,
    done: AtomicBool,
}

impl Stage {
    fn new() -> Self {
        let detached = Detached::load(16_384).unwrap();
        let maps = detached.maps();
        let config = Config {
            node_v4: V4.node.into(),
            node_v6: V6.node.into(),
            snat_first: 61_000,
            snat_last: 65_000,
            ..Config::NONE
        };
        maps.config.put(&config).unwrap();
        for (service, at) in FAMILIES {
            let address = Address::from(at.cluster_ip);
            maps.addresses.put(&address, &address_flags::VIP).unwrap();
            let key = FrontendKey {
                address,
                port: Port::new(PORT),
                protocol: TCP,
                pad: 0,
            };
            let frontend = Frontend {
                internal: service,
                external: service,
                ..Frontend::default()
            };
            maps.frontends.put(&key, &frontend).unwrap();
        }
        let stage = Self {
            detached,
            switched: AtomicU64::new(0),
            switching: AtomicU64::new(0),
            done: AtomicBool::new(false),
        };
        stage.backends(0);
        stage.slots(0);
        stage.switch(0);
        stage
    }

    fn backends(&self, set: u32) {
        for (service, _) in FAMILIES {
            for member in 0..MEMBERS {
                let (id, backend) = backend(service, set, member);
                self.detached.maps().backends.put(&id, &backend).unwrap();
            }
        }
    }

    fn slots(&self, set: u32) {
        for (key, id) in FAMILIES.into_iter().flat_map(|(service, _)| slots(service, set)) {
            self.detached.maps().slots.put(&key, &id).unwrap();
        }
    }

    fn switch(&self, set: u32) {
        self.switching.store(u64::from(set), Ordering::SeqCst);
        for (service, _) in FAMILIES {
            let current = Service {
                generation: set + 1,
                slots: MEMBERS,
            };
            self.detached.maps().services.put(&service, &current).unwrap();
        }
        self.switched.store(u64::from(set), Ordering::SeqCst);
    }

    fn remove_slots(&self, set: u32) {
        for (key, _) in FAMILIES.into_iter().flat_map(|(service, _)| slots(service, set)) {
            assert!(
                self.detached.maps().slots.delete(&key).unwrap(),
                "set {set} was there"
            );
        }
    }

    fn remove_backends(&self, set: u32) {
        for (service, _) in FAMILIES {
            for member in 0..MEMBERS {
                let id = backend(service, set, member).0;
                assert!(self.detached.maps().backends.delete(&id).unwrap());
            }
        }
    }

    /// From the set before to this one.
    fn change(&self, set: u32, order: Order) {
        let old = set - 1;
        if order != Order::BackendsAfterSwitch {
            self.backends(set);
        }
        self.slots(set);
        self.switch(set);
        match order {
            Order::Right => self.detached.barrier().unwrap(),
            Order::SlotsBeforeBarrier => {}
            Order::BackendsAfterSwitch => {
                self.backends(set);
                self.detached.barrier().unwrap();
            }
        }
        self.remove_slots(old);
        self.remove_backends(old);
    }

    fn holes(&self) -> u64 {
        let counts = self.detached.maps().counters().unwrap();
        counts.get(Counter::DroppedHole) + counts.get(Counter::SocketHole)
    }

    /// Sends first packets of new flows until the changes are done; returns how many, and of how many sets.
    fn send(&self) -> Sent {
        let _node = TestNode::enter().unwrap();
        let mut sent = Sent::default();
        while !self.done.load(Ordering::SeqCst) {
            for (_, at) in FAMILIES {
                // Client ports come again, when CONNTRACK has long forgotten.
                let client = (at.pod_a, 1_024 + (sent.packets % 60_000) as u16);
                let frame = tcp(client, (at.cluster_ip, PORT)).syn().bytes();
                let input = Input {
                    packet: &frame,
                    ifindex: POD_A,
                    own: false,
                    gso_size: 0,
                    repeat: 1,
                };
                let first = self.switched.load(Ordering::SeqCst);
                let run = self.detached.run(DeviceHook::PodIngress, &input).unwrap();
                let last = self.switching.load(Ordering::SeqCst);
                sent.packets += 1;
                // A hole drops, and is counted.
                if run.verdict != Verdict::On.number() {
                    sent.dropped += 1;
                    continue;
                }
                let (address, reached) = destination(&run.packet);
                assert_eq!(address, at.pod_b);
                let permitted = (first..=last).find(|set| {
                    let set = u32::try_from(*set).unwrap();
                    (0..MEMBERS).any(|member| port(set, member) == reached)
                });
                match permitted {
                    Some(set) => *sent.sets.entry(set).or_default() += 1,
                    None => sent.astray.push((first, last, reached)),
                }
            }
        }
        sent
    }
}

impl Stage {
    /// Sends packets as fast as can be, until the changes are done; returns how many.
    fn hammer(&self) -> u64 {
        let _node = TestNode::enter().unwrap();
        let frame = tcp((V4.client, 40_000), (V4.cluster_ip, PORT)).syn().bytes();
        let input = Input {
            packet: &frame,
            ifindex: UPLINK,
            own: false,
            gso_size: 0,
            repeat: REPEAT,
        };
        let mut packets = 0;
        while !self.done.load(Ordering::SeqCst) {
            let run = self.detached.run(DeviceHook::NodeIngress, &input).unwrap();
            assert_eq!(run.packet, frame, "what is dropped is as it came");
            packets += u64::from(REPEAT);
        }
        packets
    }
}

#[derive(Default, Debug)]
struct Sent {
    packets: u64,
    dropped: u64,
    /// Packets by set.
    sets: BTreeMap<u64, u64>,
    /// To a backend of no set that was there.
    astray: Vec<(u64, u64, u16)>,
}

fn destination(frame: &[u8]) -> (IpAddr, u16) {
    let Read::Whole(layout) = read(frame, false) else {
        panic!("what came out is no packet: {frame:02x?}");
    };
    let port = [frame[layout.payload + 2], frame[layout.payload + 3]];
    (layout.destination.into(), u16::from_be_bytes(port))
}

#[test]
fn no_packet_finds_a_hole_or_a_backend_of_neither_set_while_backends_change_a_thousand_times() {
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    let stage = Stage::new();
    let sent = thread::scope(|scope| {
        let sender = scope.spawn(|| stage.send());
        for set in 1..=CHANGES {
            stage.change(set, Order::Right);
        }
        stage.done.store(true, Ordering::SeqCst);
        sender.join().unwrap()
    });
    println!("{} packets found {} sets", sent.packets, sent.sets.len());
    assert_eq!(stage.holes(), 0, "no packet finds a hole");
    assert_eq!(sent.dropped, 0, "no packet is dropped");
    assert!(sent.astray.is_empty(), "{:?}", sent.astray);
    assert!(
        sent.sets.len() > CHANGES as usize / 10,
        "packets saw only {} of {CHANGES} sets: they were not sent while backends changed",
        sent.sets.len()
    );
}

/// The same in a wrong order finds holes: the test would see them.
///
/// Packets come from outside, for backends of another node, and there is no address to send from: so each is dropped as
/// it came when its backend has been chosen, and the same system call can send it again.
fn finds_a_hole(order: Order) {
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    let stage = Stage::new();
    stage.detached.maps().config.put(&Config::NONE).unwrap();
    let tries = thread::scope(|scope| {
        let sender = scope.spawn(|| stage.hammer());
        let found = (1..=TRIES).find(|set| {
            stage.change(*set, order);
            set.is_multiple_of(16) && stage.holes() > 0
        });
        stage.done.store(true, Ordering::SeqCst);
        let sent = sender.join().unwrap();
        assert!(sent > 0, "no packet was sent");
        found
    });
    match tries {
        Some(tries) => println!("{order:?}: a hole after at most {tries} changes"),
        None => panic!("{order:?}: no hole in {TRIES} changes, though there is one in each"),
    }
}

#[test]
fn slots_that_go_before_the_barrier_are_a_hole() {
    finds_a_hole(Order::SlotsBeforeBarrier);
}

#[test]
fn backends_that_come_after_the_switch_are_a_hole() {
    finds_a_hole(Order::BackendsAfterSwitch);
}
