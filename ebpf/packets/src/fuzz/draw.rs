//! What scenarios are drawn as: numbers, of which `scenario` and `program_state` make entries of maps.

use lb_abi::{BackendId, frontend_flags};
use proptest::{collection::vec, prelude::*};

use super::{
    pool,
    scenario::{BACKENDS, SERVICES},
};

#[derive(Clone, Debug)]
pub(super) struct FrontendDraw {
    pub(super) place: usize,
    pub(super) port: usize,
    pub(super) other_protocol: Option<usize>,
    pub(super) services: (u32, u32),
    pub(super) flags: u32,
    pub(super) affinity: u32,
}

#[derive(Clone, Debug)]
pub(super) struct ServiceDraw {
    pub(super) generation: u32,
    pub(super) slots: Vec<BackendId>,
    /// Of two generations, whose slots are there.
    pub(super) missing: Option<u32>,
}

#[derive(Clone, Debug)]
pub(super) struct BackendDraw {
    pub(super) host: usize,
    pub(super) port: usize,
    pub(super) misplaced: bool,
    pub(super) absent: bool,
    /// Of the other family.
    pub(super) foreign: bool,
}

#[derive(Clone, Debug)]
pub(super) struct FlowDraw {
    pub(super) client: usize,
    pub(super) source: usize,
    pub(super) frontend: usize,
    pub(super) backend: usize,
    pub(super) allocated: Option<u16>,
    pub(super) keep_address: bool,
    pub(super) seen: u32,
    pub(super) age: u32,
    pub(super) service: u32,
    pub(super) torn: u8,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ConfigDraw {
    pub(super) nodes: u8,
    pub(super) ports: u16,
    pub(super) rejects: u32,
    pub(super) fill: u8,
    pub(super) addresses: [u8; 9],
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

pub(super) fn frontend() -> impl Strategy<Value = FrontendDraw> {
    let services = prop_oneof![
        4 => (1..=SERVICES).prop_map(|id| (id, id)),
        1 => (0..=SERVICES, 0..=SERVICES),
    ];
    let flags = prop_oneof![
        3 => Just(0),
        2 => 0..=frontend_flags::ALL,
        1 => Just(frontend_flags::MAGLEV),
    ];
    let other_protocol = proptest::option::weighted(0.15, 0..3_usize);
    let affinity = prop_oneof![3 => Just(0_u32), 1 => Just(10), 1 => Just(10_800)];
    let draw = (
        0..pool::PLACES,
        0..3_usize,
        other_protocol,
        services,
        flags,
        affinity,
    );
    draw.prop_map(
        |(place, port, other_protocol, services, flags, affinity)| FrontendDraw {
            place,
            port,
            other_protocol,
            services,
            flags,
            affinity,
        },
    )
}

pub(super) fn service() -> impl Strategy<Value = ServiceDraw> {
    let slots = prop_oneof![1 => Just(Vec::new()), 7 => vec(1..=BACKENDS, 1..5)];
    let generation = prop_oneof![1 => Just(0_u32), 20 => 1_u32..4];
    let missing = proptest::option::weighted(0.06, 0..4_u32);
    (generation, slots, missing).prop_map(|(generation, slots, missing)| ServiceDraw {
        generation,
        slots,
        missing,
    })
}

pub(super) fn backend() -> impl Strategy<Value = BackendDraw> {
    let host = prop_oneof![4 => 0..5_usize, 1 => 0..pool::HOSTS];
    (host, 0..3_usize, rarely(12), rarely(20), rarely(40)).prop_map(
        |(host, port, misplaced, absent, foreign)| BackendDraw {
            host,
            port,
            misplaced,
            absent,
            foreign,
        },
    )
}

pub(super) fn flow() -> impl Strategy<Value = FlowDraw> {
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

pub(super) fn config() -> impl Strategy<Value = ConfigDraw> {
    let ports =
        prop_oneof![1 => 1_u16..4, 4 => 4_u16..40, 1 => 120_u16..160, 1 => pool::WIDE..pool::WIDE + 200];
    let rejects = prop_oneof![8 => Just(0_u32), 1 => 1..4_u32];
    (0..12_u8, ports, rejects, 0..16_u8, any::<[u8; 9]>()).prop_map(
        |(nodes, ports, rejects, fill, addresses)| ConfigDraw {
            nodes,
            ports,
            rejects,
            fill,
            addresses,
        },
    )
}
