//! Random scenarios. Pure: one seed gives one scenario, in which each step is valid after the earlier ones.

mod chaos;

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};

pub use chaos::{Churn, with_chaos};

use crate::{
    state::{OUTSIDE_SERVER, State},
    step::{
        Address, Backend, Change, Condition, Dial, Kind, Open, Protocol, Scenario, Send, Service, Step, To,
        Vantage,
    },
};

/// Limit of Services: few, so that they interact.
const SERVICES: u8 = 4;
/// Limit of kept sockets: each continues after every change.
const SOCKETS: u8 = 6;
/// Few ports, so that Services, sockets and nodes' own servers use the same ones.
const NODE_PORTS: [u16; 3] = [30500, 30501, 30502];
const PORTS: [u16; 3] = [80, 81, OUTSIDE_SERVER];
const SOURCE_PORTS: [u16; 2] = [41000, 41001];
/// Orders in which the fragments of a datagram are sent.
const ORDERS: [&[u8]; 5] = [&[0, 1], &[1, 0], &[2, 1, 0], &[0, 2, 1], &[1, 2, 0]];
/// Tries for one step; most are valid.
const TRIES: usize = 1000;

/// The scenario of a seed.
#[must_use]
pub fn scenario(seed: u64, steps: usize) -> Scenario {
    let mut random = StdRng::seed_from_u64(seed);
    valid(seed, steps, |state| step(&mut random, state))
}

/// A scenario of steps that are made in turn, each for the state after those before it. Those that are invalid then are left out.
fn valid(seed: u64, steps: usize, mut make: impl FnMut(&State) -> Step) -> Scenario {
    let mut state = State::default();
    let mut all = Vec::new();
    while all.len() < steps {
        let made = (0..TRIES).find_map(|_| {
            let step = make(&state);
            Some((state.after(&step)?, step))
        });
        let Some((next, step)) = made else {
            break;
        };
        state = next;
        all.push(step);
    }
    Scenario { seed, steps: all }
}

fn step(random: &mut StdRng, state: &State) -> Step {
    if state.services.len() < 2 {
        return Step::Write(vec![create(random, state)]);
    }
    match random.random_range(0..100) {
        0..8 => Step::Write(vec![create(random, state)]),
        8..24 => Step::Write(vec![changed(random, state)]),
        24..34 => Step::Write(passed(random, state)),
        34..37 => Step::Write(vec![Change {
            service: any_service(random, state),
            to: None,
        }]),
        number => client(random, state, number),
    }
}

/// What clients and nodes' own servers do, in these shares.
const CLIENTS: std::ops::Range<u32> = 37..100;

fn client(random: &mut StdRng, state: &State, number: u32) -> Step {
    match number {
        ..64 => Step::Dial(dial(random, state)),
        64..80 => Step::Open(open(random, state)),
        80..89 => send(random, state),
        89..92 => Step::Close {
            socket: random.random_range(0..SOCKETS),
        },
        92..97 => Step::Serve {
            node: random.random_range(1..=2),
            port: any(random, &NODE_PORTS),
        },
        _ => Step::EndServing {
            node: random.random_range(1..=2),
            port: any(random, &NODE_PORTS),
        },
    }
}

fn create(random: &mut StdRng, state: &State) -> Change {
    let free: Vec<u8> = (1..=SERVICES)
        .filter(|number| !state.services.contains_key(number))
        .collect();
    let service = free.choose(random).copied().unwrap_or(1);
    let kind = *[
        Kind::ClusterIP,
        Kind::NodePort,
        Kind::NodePort,
        Kind::LoadBalancer,
    ]
    .choose(random)
    .unwrap_or(&Kind::NodePort);
    let mut to = Service {
        kind,
        port: any(random, &PORTS),
        node_port: None,
        external_ips: Vec::new(),
        load_balancer: Vec::new(),
        external_local: false,
        internal_local: random.random_ratio(1, 8),
        affinity: random.random_ratio(1, 8),
        endpoints: endpoints(random),
    };
    if kind == Kind::NodePort || kind == Kind::LoadBalancer && random.random() {
        to.node_port = Some(any(random, &NODE_PORTS));
    }
    if kind == Kind::LoadBalancer {
        to.load_balancer = addresses(random);
    } else if random.random_ratio(1, 3) {
        to.external_ips = addresses(random);
    }
    let is_external = kind != Kind::ClusterIP || !to.external_ips.is_empty();
    to.external_local = is_external && random.random_ratio(1, 4);
    Change {
        service,
        to: Some(to),
    }
}

/// One or two different addresses.
fn addresses(random: &mut StdRng) -> Vec<Address> {
    let count = random.random_range(1..=2);
    Address::ALL.choose_multiple(random, count).copied().collect()
}

fn endpoints(random: &mut StdRng) -> BTreeMap<Backend, Condition> {
    let count = *[0, 1, 1, 2, 2, 2, 3].choose(random).unwrap_or(&1);
    let chosen = Backend::ALL.choose_multiple(random, count);
    let conditions = [
        Condition::Ready,
        Condition::Ready,
        Condition::Ready,
        Condition::Ready,
        Condition::Unready,
        Condition::Terminating,
    ];
    let mut all = BTreeMap::new();
    for backend in chosen {
        let condition = *conditions.choose(random).unwrap_or(&Condition::Ready);
        all.insert(*backend, condition);
    }
    all
}

/// Changes one part of a Service.
fn changed(random: &mut StdRng, state: &State) -> Change {
    let number = any_service(random, state);
    let mut to = state.services.get(&number).cloned();
    if let Some(service) = &mut to {
        match random.random_range(0..10) {
            0..5 => service.endpoints = endpoints(random),
            5 => service.external_local = !service.external_local,
            6 => service.internal_local = !service.internal_local,
            7 if service.kind == Kind::NodePort => service.node_port = Some(any(random, &NODE_PORTS)),
            8 if service.kind == Kind::LoadBalancer => service.load_balancer = addresses(random),
            8 => service.external_ips = addresses(random),
            _ => service.port = any(random, &PORTS),
        }
    }
    Change { service: number, to }
}

/// Moves something from one Service to another: two writes in a row.
fn passed(random: &mut StdRng, state: &State) -> Vec<Change> {
    let (from, to) = (any_service(random, state), any_service(random, state));
    let (Some(mut giver), Some(mut taker)) = (
        state.services.get(&from).cloned(),
        state.services.get(&to).cloned(),
    ) else {
        return Vec::new();
    };
    if from == to {
        return Vec::new();
    }
    if giver.node_port.is_some() && random.random() {
        taker.node_port = giver.node_port.take();
        match giver.kind {
            Kind::NodePort => giver.kind = Kind::ClusterIP,
            Kind::ClusterIP | Kind::LoadBalancer => {}
        }
        if taker.kind == Kind::ClusterIP {
            taker.kind = Kind::NodePort;
        }
    } else if !giver.load_balancer.is_empty() {
        match taker.kind {
            Kind::LoadBalancer => taker.load_balancer = std::mem::take(&mut giver.load_balancer),
            _ => taker.external_ips = std::mem::take(&mut giver.load_balancer),
        }
        taker.port = giver.port;
    } else {
        taker.external_ips = std::mem::take(&mut giver.external_ips);
        taker.port = giver.port;
    }
    giver.external_local &= giver.kind != Kind::ClusterIP || !giver.external_ips.is_empty();
    let change = |service, to| Change {
        service,
        to: Some(to),
    };
    vec![change(from, giver), change(to, taker)]
}

fn dial(random: &mut StdRng, state: &State) -> Dial {
    let from = vantage(random);
    let protocol = protocol(random);
    let fragments = if from == Vantage::Outside && protocol == Protocol::Udp && random.random() {
        ORDERS
            .choose(random)
            .map_or_else(Vec::new, |order| order.to_vec())
    } else {
        Vec::new()
    };
    Dial {
        from,
        protocol,
        to: to(random, state, from),
        source_port: source_port(random, 4),
        fragments,
    }
}

fn open(random: &mut StdRng, state: &State) -> Open {
    let from = vantage(random);
    // Services that come later may break a node's own connections.
    let is_own = from.is_host() && random.random();
    Open {
        socket: random.random_range(0..SOCKETS),
        from,
        protocol: protocol(random),
        to: if is_own {
            To::At {
                address: Address::Outside,
                port: OUTSIDE_SERVER,
            }
        } else {
            to(random, state, from)
        },
        source_port: if is_own && random.random() {
            Some(any(random, &NODE_PORTS))
        } else {
            source_port(random, 2)
        },
    }
}

fn send(random: &mut StdRng, state: &State) -> Step {
    let sockets: Vec<&Open> = state.sockets.values().collect();
    let Some(open) = sockets.choose(random) else {
        return Step::Close { socket: 0 };
    };
    let is_elsewhere = open.protocol != Protocol::Tcp && random.random_ratio(2, 3);
    Step::Send(Send {
        socket: open.socket,
        to: if is_elsewhere {
            to(random, state, open.from)
        } else {
            open.to
        },
        fragments: Vec::new(),
    })
}

/// Mostly a destination with a Service, or a machine's own server.
fn to(random: &mut StdRng, state: &State, from: Vantage) -> To {
    let number = any_service(random, state);
    let Some(service) = state.services.get(&number) else {
        return To::ClusterIp { service: number };
    };
    let mut all = vec![To::ClusterIp { service: number }];
    let addresses = service.external_ips.iter().chain(&service.load_balancer);
    all.extend(addresses.map(|address| To::At {
        address: *address,
        port: service.port,
    }));
    if let Some(port) = service.node_port {
        let nodes = [Address::Node1, Address::Node2];
        all.extend(nodes.map(|address| To::At { address, port }));
        if from.is_host() && random.random_ratio(1, 4) {
            all.push(To::Loopback { port });
        }
    }
    all.extend(state.servers.iter().map(|(node, port)| To::At {
        address: Address::of_node(*node),
        port: *port,
    }));
    if random.random_ratio(1, 4) {
        all.push(To::At {
            address: Address::Outside,
            port: OUTSIDE_SERVER,
        });
    }
    if from == Vantage::Outside {
        all.retain(|to| matches!(to, To::At { address, .. } if *address != Address::Outside));
    }
    all.choose(random)
        .copied()
        .unwrap_or(To::ClusterIp { service: number })
}

fn vantage(random: &mut StdRng) -> Vantage {
    // A third from outside, because many frontends are for outside clients.
    if random.random_ratio(1, 3) {
        Vantage::Outside
    } else {
        any(random, &Vantage::ALL)
    }
}

fn protocol(random: &mut StdRng) -> Protocol {
    any(
        random,
        &[
            Protocol::Tcp,
            Protocol::Udp,
            Protocol::Udp,
            Protocol::UdpConnected,
        ],
    )
}

/// With a probability of 1 in `of`, a chosen source port, which may be a node port.
fn source_port(random: &mut StdRng, of: u32) -> Option<u16> {
    let all = [&NODE_PORTS[..], &SOURCE_PORTS].concat();
    random.random_ratio(1, of).then(|| any(random, &all))
}

fn any_service(random: &mut StdRng, state: &State) -> u8 {
    let all: Vec<u8> = state.services.keys().copied().collect();
    all.choose(random).copied().unwrap_or(1)
}

fn any<T: Copy>(random: &mut StdRng, of: &[T]) -> T {
    of[random.random_range(0..of.len())]
}

#[cfg(test)]
mod tests;
