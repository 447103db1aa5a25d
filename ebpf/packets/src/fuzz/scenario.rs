//! Random services, and what the programs themselves may have written.

use lb_abi::{
    Address, Affinity, AffinityKey, Backend, BackendId, Config, Flow, Frontend, FrontendKey, Port, Service,
    ServiceId, SlotKey, SourceKey, Tuple, address_flags, backend_flags, flow_flags, frontend_flags,
};
use proptest::{collection::vec, prelude::*};

use super::pool;
use crate::model::State;

/// The time in states as they are drawn; they are moved to the present when they are written.
pub(super) const NOW: u32 = 1_000_000;

/// Service ports: 1 to this.
pub(super) const SERVICES: u32 = 3;
/// Backends: 1 to this.
pub(super) const BACKENDS: u32 = 5;

/// Maps, and what is in them as packets are aimed at it.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) v4: bool,
    pub(super) protocol: u8,
    pub(super) state: State,
    /// Forward tuples of flows, and what they become.
    pub(super) flows: Vec<(Tuple, Tuple)>,
    /// Keys of frontends.
    pub(super) frontends: Vec<FrontendKey>,
}

#[derive(Clone, Debug)]
struct FrontendDraw {
    place: usize,
    port: usize,
    stray_protocol: Option<usize>,
    services: (u32, u32),
    flags: u32,
    affinity: u32,
}

#[derive(Clone, Debug)]
struct ServiceDraw {
    generation: u32,
    slots: Vec<BackendId>,
    /// Of two generations, whose slots are there.
    missing: Option<u32>,
}

#[derive(Clone, Debug)]
struct BackendDraw {
    host: usize,
    port: usize,
    misplaced: bool,
    absent: bool,
}

#[derive(Clone, Debug)]
struct FlowDraw {
    client: usize,
    source: usize,
    frontend: usize,
    backend: usize,
    allocated: Option<u16>,
    keep_address: bool,
    seen: u32,
    age: u32,
    service: u32,
    torn: u8,
}

#[derive(Clone, Copy, Debug)]
struct ConfigDraw {
    nodes: u8,
    ports: u16,
    rejects: u32,
    fill: u8,
    addresses: [u8; 7],
}

/// One in so many.
pub(super) fn rarely(of: u32) -> impl Strategy<Value = bool> {
    (0..of).prop_map(move |draw| draw == of / 2)
}

/// Around the limits.
pub(super) fn age() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => 0_u32..5,
        1 => 8_u32..13,
        1 => 28_u32..33,
        1 => 58_u32..63,
        1 => 118_u32..123,
        1 => 3598_u32..3603,
        1 => 86_398_u32..86_403,
        1 => 200_000_u32..300_000,
    ]
}

fn frontend() -> impl Strategy<Value = FrontendDraw> {
    let services = prop_oneof![
        4 => (1..=SERVICES).prop_map(|id| (id, id)),
        1 => (0..=SERVICES, 0..=SERVICES),
    ];
    let flags = prop_oneof![
        3 => Just(0),
        2 => 0..=frontend_flags::ALL,
        1 => Just(frontend_flags::MAGLEV),
    ];
    let stray_protocol = proptest::option::weighted(0.15, 0..3_usize);
    let affinity = prop_oneof![3 => Just(0_u32), 1 => Just(10), 1 => Just(10_800)];
    let draw = (
        0..pool::PLACES,
        0..3_usize,
        stray_protocol,
        services,
        flags,
        affinity,
    );
    draw.prop_map(
        |(place, port, stray_protocol, services, flags, affinity)| FrontendDraw {
            place,
            port,
            stray_protocol,
            services,
            flags,
            affinity,
        },
    )
}

fn service() -> impl Strategy<Value = ServiceDraw> {
    let slots = prop_oneof![1 => Just(Vec::new()), 7 => vec(1..=BACKENDS, 1..5)];
    let generation = prop_oneof![1 => Just(0_u32), 20 => 1_u32..4];
    let missing = proptest::option::weighted(0.06, 0..4_u32);
    (generation, slots, missing).prop_map(|(generation, slots, missing)| ServiceDraw {
        generation,
        slots,
        missing,
    })
}

fn backend() -> impl Strategy<Value = BackendDraw> {
    let host = prop_oneof![4 => 0..5_usize, 1 => 0..pool::HOSTS];
    (host, 0..3_usize, rarely(12), rarely(20)).prop_map(|(host, port, misplaced, absent)| BackendDraw {
        host,
        port,
        misplaced,
        absent,
    })
}

fn flow() -> impl Strategy<Value = FlowDraw> {
    let allocated = proptest::option::of(0..4_u16);
    let seen = prop_oneof![3 => 0..4_u32, 1 => 0..32_u32];
    (
        (0..pool::CLIENTS, 0..3_usize, 0..4_usize, 0..BACKENDS as usize),
        (allocated, any::<bool>(), seen, age()),
        (1..=SERVICES, 0..14_u8),
    )
        .prop_map(
            |((client, source, frontend, backend), (allocated, keep_address, seen, age), (service, torn))| {
                FlowDraw {
                    client,
                    source,
                    frontend,
                    backend,
                    allocated,
                    keep_address,
                    seen,
                    age,
                    service,
                    torn,
                }
            },
        )
}

fn config() -> impl Strategy<Value = ConfigDraw> {
    let ports = prop_oneof![1 => 1_u16..4, 4 => 4_u16..40, 1 => 120_u16..160];
    let rejects = prop_oneof![8 => Just(0_u32), 1 => 1..4_u32];
    (0..12_u8, ports, rejects, 0..16_u8, any::<[u8; 7]>()).prop_map(
        |(nodes, ports, rejects, fill, addresses)| ConfigDraw {
            nodes,
            ports,
            rejects,
            fill,
            addresses,
        },
    )
}

/// Maps.
pub(super) fn scenario() -> impl Strategy<Value = Scenario> {
    let protocol = prop_oneof![4 => Just(0_usize), 4 => Just(1), 2 => Just(2)];
    let sources = vec((1..=SERVICES, 0..pool::CLIENTS, 0..6_usize), 0..3);
    let kept = vec((0..pool::CLIENTS, 1..=SERVICES, 1..=BACKENDS, age()), 0..4);
    (
        (any::<bool>(), protocol, config()),
        vec(frontend(), 1..5),
        vec(service(), SERVICES as usize),
        vec(backend(), BACKENDS as usize),
        (sources, kept, vec(flow(), 0..4)),
    )
        .prop_map(
            |((v4, protocol, config), frontends, services, backends, written)| {
                let mut scenario = Scenario {
                    v4,
                    protocol: pool::PROTOCOLS[protocol],
                    state: State::default(),
                    flows: Vec::new(),
                    frontends: Vec::new(),
                };
                let (sources, kept, flows) = written;
                scenario.configure(&config);
                scenario.serve(&frontends, &services, &backends);
                scenario.admit(&sources, &kept);
                scenario.fill(&config);
                for flow in &flows {
                    scenario.flow(flow);
                }
                scenario
            },
        )
}

impl Scenario {
    fn configure(&mut self, draw: &ConfigDraw) {
        let node = |v4: bool, missing: u8| {
            if draw.nodes == missing {
                if v4 {
                    Address::UNSPECIFIED_V4
                } else {
                    Address::UNSPECIFIED_V6
                }
            } else {
                pool::family(v4).node.into()
            }
        };
        self.state.config = Config {
            node_v4: node(true, 1),
            node_v6: node(false, 2),
            snat_first: pool::FIRST,
            snat_last: pool::FIRST + draw.ports - 1,
            rejects_per_second: draw.rejects,
            ..Config::NONE
        };
        use address_flags::{NODE, SILENT, VIP};
        let usual = [VIP, NODE, VIP, VIP | SILENT, NODE, NODE];
        for (place, (usual, draw)) in usual.into_iter().zip(draw.addresses).enumerate() {
            let flags = match draw % 32 {
                0 => continue,
                1 => VIP | NODE,
                2 => VIP | SILENT,
                3 => usual ^ SILENT,
                4 => VIP,
                5 => NODE,
                _ => usual,
            };
            self.state
                .addresses
                .insert(pool::reached(self.v4, place).into(), flags);
        }
        let loopback = if self.v4 {
            Address::LOOPBACK_V4
        } else {
            Address::LOOPBACK_V6
        };
        if draw.addresses[6].is_multiple_of(2) {
            self.state.addresses.insert(loopback, NODE);
        }
    }

    fn serve(&mut self, frontends: &[FrontendDraw], services: &[ServiceDraw], backends: &[BackendDraw]) {
        for draw in frontends {
            let key = FrontendKey {
                address: pool::place(self.v4, draw.place).into(),
                port: Port::new(pool::PORTS[draw.port]),
                protocol: draw
                    .stray_protocol
                    .map_or(self.protocol, |index| pool::PROTOCOLS[index]),
                pad: 0,
            };
            let frontend = Frontend {
                internal: draw.services.0,
                external: draw.services.1,
                flags: draw.flags,
                affinity_seconds: draw.affinity,
            };
            self.state.frontends.insert(key, frontend);
            self.frontends.push(key);
        }
        for (id, draw) in (1..).zip(services) {
            let service = Service {
                generation: draw.generation,
                slots: draw.slots.len() as u32,
            };
            self.state.services.insert(id, service);
            for (index, backend) in (0..).zip(&draw.slots) {
                if draw.missing == Some(index) {
                    continue;
                }
                let key = SlotKey {
                    service: id,
                    generation: draw.generation,
                    index,
                };
                self.state.slots.insert(key, *backend);
                let member = SlotKey::member(id, draw.generation, *backend);
                self.state.slots.insert(member, *backend);
            }
        }
        for (id, draw) in (1..).zip(backends) {
            let local = (draw.host < 2) != draw.misplaced;
            let backend = Backend {
                address: pool::host(self.v4, draw.host).into(),
                port: Port::new(pool::TARGETS[draw.port]),
                protocol: self.protocol,
                flags: if local { backend_flags::LOCAL } else { 0 },
            };
            if !draw.absent {
                self.state.backends.insert(id, backend);
            }
        }
    }

    fn admit(&mut self, sources: &[(u32, usize, usize)], kept: &[(usize, u32, u32, u32)]) {
        for (service, client, length) in sources {
            let client = pool::client(self.v4, *client);
            let length = if self.v4 {
                [0, 8, 24, 25, 31, 32]
            } else {
                [0, 32, 64, 65, 127, 128]
            }[*length];
            let range = SourceKey::range(*service, cut(client.into(), length), length);
            self.state.sources.insert(range);
        }
        for (client, service, backend, age) in kept {
            let key = AffinityKey {
                service: *service,
                kind: 0,
                client: pool::client(self.v4, *client).into(),
            };
            let value = Affinity {
                backend: *backend,
                seconds: NOW - age,
            };
            self.state.affinity.insert(key, value);
        }
    }

    /// All ports of a backend taken, but for some.
    fn fill(&mut self, draw: &ConfigDraw) {
        if draw.fill > 4 {
            return;
        }
        let config = self.state.config;
        let backends: Vec<_> = self
            .state
            .backends
            .iter()
            .map(|(id, backend)| (*id, *backend))
            .collect();
        let node = pool::family(self.v4).node;
        for (number, port) in (config.snat_first..=config.snat_last).enumerate() {
            for (id, backend) in backends.iter().take(usize::from(draw.fill) + 1) {
                if draw.fill % 2 == 1 && number % 7 == 3 {
                    continue;
                }
                let client = (pool::client(self.v4, 0), 2000 + port);
                let frontend = (pool::place(self.v4, 0), 81);
                let key = self.tuple(client, frontend);
                let to = Tuple {
                    source: node.into(),
                    source_port: Port::new(port),
                    destination: backend.address,
                    destination_port: backend.port,
                    ..key
                };
                let key = Tuple {
                    source_port: Port::new(2000 + port + 1000 * *id as u16),
                    ..key
                };
                let age = if draw.fill == 4 && number % 3 == 0 {
                    100_000
                } else {
                    1
                };
                self.pair(key, to, (1, *id), (flow_flags::SNAT, 1, age), 0);
            }
        }
    }

    pub(super) fn tuple(&self, from: (std::net::IpAddr, u16), to: (std::net::IpAddr, u16)) -> Tuple {
        Tuple {
            source: from.0.into(),
            destination: to.0.into(),
            source_port: Port::new(from.1),
            destination_port: Port::new(to.1),
            protocol: self.protocol,
            pad: [0; 3],
        }
    }

    fn flow(&mut self, draw: &FlowDraw) {
        let Some(frontend) = self.frontends.get(draw.frontend % self.frontends.len()).copied() else {
            return;
        };
        let v4 = self.v4;
        let at = if std::net::IpAddr::from(frontend.address).is_unspecified() {
            pool::family(v4).node
        } else {
            frontend.address.into()
        };
        let client = (pool::client(v4, draw.client), pool::SOURCES[draw.source]);
        let key = self.tuple(client, (at, frontend.port.get()));
        let id = draw.backend as u32 + 1;
        let Some(backend) = self.state.backends.get(&id).copied() else {
            return;
        };
        let mut to = Tuple {
            destination: backend.address,
            destination_port: backend.port,
            ..key
        };
        let mut flags = 0;
        if let Some(port) = draw.allocated {
            flags = flow_flags::SNAT;
            to.source_port = Port::new(pool::FIRST + port);
            if !draw.keep_address {
                to.source = pool::family(v4).node.into();
            }
        }
        if draw.torn == 5 {
            // Its backend has become another one.
            to.destination_port = Port::new(8181);
        }
        self.flows.push((key, to));
        self.pair(
            key,
            to,
            (draw.service, id),
            (flags, draw.seen, draw.age),
            draw.torn,
        );
    }

    /// Both entries, or what is left of them.
    fn pair(
        &mut self,
        key: Tuple,
        to: Tuple,
        (service, backend): (ServiceId, BackendId),
        (flags, seen, age): (u32, u32, u32),
        torn: u8,
    ) {
        let forward = Flow {
            to,
            seen,
            last_seen: NOW - age,
            service,
            backend,
            flags,
            pad: 0,
            claim: 7,
        };
        let mut reply = Flow {
            to: key.inverse(),
            flags: flags | flow_flags::REPLY,
            claim: 8,
            ..forward
        };
        if torn == 1 {
            reply.to.destination_port = Port::new(40_002);
        }
        let flows = &mut self.state.flows;
        if torn != 2 {
            flows.insert(key, forward);
        }
        if torn != 3 {
            flows.insert(to.inverse(), reply);
        }
        if torn == 4 {
            // The forward entry has gone another way since.
            let mut elsewhere = forward;
            elsewhere.to.destination_port = Port::new(8282);
            flows.insert(key, elsewhere);
        }
    }
}

/// An address with only its first bits.
fn cut(address: Address, length: u8) -> Address {
    let bits = u32::from(length) + if address.is_v4() { 96 } else { 0 };
    let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    Address::v6((u128::from_be_bytes(address.octets()) & mask).to_be_bytes())
}
