//! Random services.

use lb_abi::{
    Address, AddressRange, Affinity, AffinityKey, Backend, Config, Frontend, FrontendKey, Port, Service,
    SlotKey, SourceKey, Tuple, address_flags, backend_flags,
};
use proptest::{collection::vec, prelude::*};

use super::{
    draw::{
        BackendDraw, ConfigDraw, FrontendDraw, ServiceDraw, age, backend, config, flow, frontend, service,
    },
    pool,
};
use crate::{model::State, table::ELSEWHERE};

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

/// Maps.
pub(super) fn scenario() -> impl Strategy<Value = Scenario> {
    let protocol = prop_oneof![4 => Just(0_usize), 4 => Just(1), 2 => Just(2)];
    let sources = vec(
        (SourceKey::CLUSTER..=SERVICES, 0..pool::CLIENTS, 0..6_usize),
        0..3,
    );
    let kept = vec((0..pool::CLIENTS, 1..=SERVICES, 1..=BACKENDS, age()), 0..4);
    let pieces = vec((0..4_usize, any::<bool>(), 0..2_u32, age()), 0..4);
    (
        (any::<bool>(), protocol, config()),
        vec(frontend(), 1..5),
        vec(service(), SERVICES as usize),
        vec(backend(), BACKENDS as usize),
        (sources, kept, vec(flow(), 0..4), pieces),
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
                let (sources, kept, flows, pieces) = written;
                scenario.configure(&config);
                scenario.serve(&frontends, &services, &backends);
                scenario.admit(&sources, &kept);
                scenario.fill(&config);
                for flow in &flows {
                    scenario.flow(flow);
                }
                for piece in &pieces {
                    scenario.piece(*piece);
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
            node_netns: ELSEWHERE,
            node_v4: node(true, 1),
            node_v6: node(false, 2),
            snat_first: pool::FIRST,
            snat_last: pool::FIRST + draw.ports - 1,
            rejects_per_second: draw.rejects,
            ..Config::NONE
        };
        let local = u16::from(draw.addresses[7] % 32);
        if local < 8 {
            (self.state.config.local_first, self.state.config.local_last) =
                (pool::FIRST + local, pool::FIRST + local * 5);
        }
        if draw.addresses[8].is_multiple_of(4) {
            let length = if self.v4 { 24 } else { 112 };
            self.state.config.service_ranges[usize::from(draw.addresses[8] / 4 % 4)] =
                AddressRange::new(pool::place(self.v4, 0).into(), length);
        }
        use address_flags::{LOAD_BALANCER, NODE, VIP};
        let usual = [VIP, NODE, LOAD_BALANCER, VIP, NODE, NODE];
        for (place, (usual, draw)) in usual.into_iter().zip(draw.addresses).enumerate() {
            let flags = match draw % 32 {
                0 => continue,
                1 => VIP | NODE,
                2 => VIP | LOAD_BALANCER,
                3 => usual ^ LOAD_BALANCER,
                6 => LOAD_BALANCER,
                7 => 0,
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
                    .other_protocol
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
                address: pool::host(self.v4 != draw.foreign, draw.host).into(),
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
}

/// An address with only its first bits.
fn cut(address: Address, length: u8) -> Address {
    let bits = u32::from(length) + if address.is_v4() { 96 } else { 0 };
    let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    Address::v6((u128::from_be_bytes(address.octets()) & mask).to_be_bytes())
}
