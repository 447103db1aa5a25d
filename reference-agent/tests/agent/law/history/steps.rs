//! What can happen: steps of a history.

use proptest::prelude::*;

use reference_agent::maps::Map;

use super::{
    disturb::Disturbance,
    objects::{self, EndpointShape, NodeShape, ServiceShape, SliceShape},
};

/// One kind's watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    Services,
    Slices,
    Nodes,
}

/// What a restart changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Otherwise {
    /// The way to choose.
    pub(crate) selection: bool,
    /// The node's name.
    pub(crate) node: bool,
    /// Where the API servers are: one of [`objects::API_SERVERS`].
    pub(crate) api_servers: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    PutService(ServiceShape),
    /// The same again, with a note: nothing that counts is different.
    Annotate(usize),
    DeleteService(usize),
    PutSlice(SliceShape),
    /// Of the slice of the first name, this one and all that follow move to the second: split, or merged.
    MoveEndpoints(usize, usize, usize),
    DeleteSlice(usize),
    PutNode(NodeShape),
    DeleteNode(usize),
    /// Addresses, as bits of [`objects::HOST`], and whether the agent's probe is there.
    Host(u8, bool),
    /// The names of the API servers are resolved to another of [`objects::API_SERVERS`].
    ApiServers(usize),
    /// So many, reconciled one by one.
    Deliver(Watch, usize),
    /// So many of all, reconciled together.
    DeliverTogether(usize),
    Repeat(Watch),
    Relist(Watch),
    RelistThatBreaksOff(Watch, usize),
    Restart(Option<Otherwise>),
    Fail(Vec<bool>),
    /// Map, entry, and what is done to it; then the audit.
    Disturb(Vec<(Map, u16, Disturbance)>),
}

fn watch() -> impl Strategy<Value = Watch> {
    prop_oneof![3 => Just(Watch::Services), 4 => Just(Watch::Slices), 1 => Just(Watch::Nodes)]
}

fn service() -> impl Strategy<Value = ServiceShape> {
    let flags = prop_oneof![3 => Just(0_u8), 2 => any::<u8>()];
    let bits = || prop_oneof![3 => Just(0_u8), 2 => any::<u8>()];
    (
        0..objects::SERVICES.len(),
        0..objects::CLUSTER_IPS.len(),
        0..objects::SERVICE_PORTS.len(),
        prop::option::of(0..3_i64),
        (bits(), bits()),
        flags,
        0..objects::RANGES.len(),
    )
        .prop_map(
            |(name, ips, ports, created, (load_balancer, external), flags, ranges)| ServiceShape {
                name,
                ips,
                ports,
                created,
                load_balancer,
                external,
                flags,
                ranges,
            },
        )
}

fn endpoint() -> impl Strategy<Value = EndpointShape> {
    let condition = prop_oneof![6 => Just(0_u8), 2 => 1..4_u8];
    let hint = || prop_oneof![2 => Just(0_u8), 1 => 1..4_u8];
    (0..objects::ENDPOINTS.len(), condition, 0..3_u8, hint(), hint()).prop_map(
        |(address, condition, node, zones, nodes)| EndpointShape {
            address,
            condition,
            node,
            zones,
            nodes,
        },
    )
}

fn slice() -> impl Strategy<Value = SliceShape> {
    (
        0..objects::SLICES.len(),
        0..objects::OWNERS.len(),
        0..objects::SLICE_PORTS.len(),
        prop::collection::vec(endpoint(), 0..6),
    )
        .prop_map(|(name, owner, ports, endpoints)| SliceShape {
            name,
            owner,
            ports,
            endpoints,
        })
}

fn node() -> impl Strategy<Value = NodeShape> {
    let zone = prop::option::of(0..objects::ZONES.len());
    let parts = (0..objects::NODES.len(), zone, any::<u8>(), any::<u8>());
    parts.prop_map(|(name, zone, addresses, pods)| NodeShape {
        name,
        zone,
        addresses,
        pods,
    })
}

fn disturbance() -> impl Strategy<Value = (Map, u16, Disturbance)> {
    let what = prop_oneof![
        Just(Disturbance::Remove),
        Just(Disturbance::Change),
        Just(Disturbance::Add)
    ];
    (prop::sample::select(&Map::ALL[..]), any::<u16>(), what)
}

/// One step.
pub(crate) fn step() -> impl Strategy<Value = Step> {
    let name = || 0..objects::SERVICES.len();
    let slice_name = || 0..objects::SLICES.len();
    let otherwise = (
        any::<bool>(),
        any::<bool>(),
        prop::option::of(0..objects::API_SERVERS.len()),
    );
    let otherwise = otherwise.prop_map(|(selection, node, api_servers)| Otherwise {
        selection: selection && node,
        node,
        api_servers,
    });
    prop_oneof![
        7 => service().prop_map(Step::PutService),
        2 => name().prop_map(Step::Annotate),
        2 => name().prop_map(Step::DeleteService),
        9 => slice().prop_map(Step::PutSlice),
        2 => (slice_name(), slice_name(), 0..4_usize).prop_map(|(from, to, at)| Step::MoveEndpoints(from, to, at)),
        2 => slice_name().prop_map(Step::DeleteSlice),
        2 => node().prop_map(Step::PutNode),
        1 => (0..objects::NODES.len()).prop_map(Step::DeleteNode),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(addresses, probe)| Step::Host(addresses, probe)),
        1 => (0..objects::API_SERVERS.len()).prop_map(Step::ApiServers),
        12 => (watch(), 1..6_usize).prop_map(|(watch, count)| Step::Deliver(watch, count)),
        4 => (2..12_usize).prop_map(Step::DeliverTogether),
        1 => watch().prop_map(Step::Repeat),
        2 => watch().prop_map(Step::Relist),
        1 => (watch(), 0..4_usize).prop_map(|(watch, after)| Step::RelistThatBreaksOff(watch, after)),
        2 => prop::option::of(otherwise).prop_map(Step::Restart),
        3 => prop::collection::vec(prop::bool::weighted(0.4), 1..12).prop_map(Step::Fail),
        1 => prop::collection::vec(disturbance(), 1..4).prop_map(Step::Disturb),
    ]
}

/// A history of at most so many steps.
pub(crate) fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..most)
}
