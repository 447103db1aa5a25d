//! What can happen: steps of a history, and the names they are about.

use proptest::prelude::*;

/// Names that are prefixes of each other, alone, with their namespaces and across the border between the two.
pub(super) const SERVICES: [&str; 7] = ["t/t", "t/t-ext", "t/t0", "t-ext/t", "a/b-c", "a-b/c", "a/b"];
pub(super) const CLUSTER_IPS: [&str; 7] = [
    "10.96.0.1",
    "10.96.0.2",
    "10.96.0.3",
    "10.96.0.4",
    "10.96.0.1,fd00:96::1",
    "fd00:96::1",
    "",
];
pub(super) const SERVICE_PORTS: [&[&str]; 5] = [
    &["TCP 80"],
    &["TCP 80 http", "UDP 80 dns"],
    &["TCP 80 http", "TCP 81 admin"],
    &["UDP 80 dns"],
    &[],
];
pub(super) const SLICES: [&str; 6] = ["t/t", "t/t-ext", "t/s", "a/b-c", "a-b/c", "t-ext/t"];
pub(super) const OWNERS: [&str; 7] = ["t", "t-ext", "t0", "b-c", "c", "b", ""];
pub(super) const SLICE_PORTS: [&[&str]; 5] = [
    &["TCP 80"],
    &["TCP 8080 http", "UDP 5353 dns"],
    &["TCP 9090 http"],
    &["TCP 81 admin", "TCP 80 http"],
    &[],
];
/// One of them is on this node for some slices and for others not.
pub(super) const ENDPOINTS: [&str; 8] = [
    "1.1.1.1",
    "1.1.1.2@here",
    "1.1.1.3",
    "!1.1.1.4",
    "1.1.1.5@there",
    "1.1.1.1@here",
    "fd00::1",
    "fd00::2@here",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    Services,
    Slices,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    PutService {
        service: usize,
        ip: usize,
        ports: usize,
        created: Option<i64>,
    },
    DeleteService(usize),
    PutSlice {
        slice: usize,
        owner: usize,
        ports: usize,
        endpoints: u8,
    },
    DeleteSlice(usize),
    /// So many, reconciled one by one.
    Deliver(Watch, usize),
    /// So many of both, reconciled together.
    DeliverTogether(usize),
    Repeat(Watch),
    Relist(Watch),
    RelistThatBreaksOff(Watch, usize),
    Restart,
    /// With the other way to choose.
    RestartOtherwise,
    Fail(Vec<bool>),
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let watch = || prop_oneof![Just(Watch::Services), Just(Watch::Slices)];
    prop_oneof![
        6 => (0..SERVICES.len(), 0..CLUSTER_IPS.len(), 0..SERVICE_PORTS.len(), prop::option::of(0..3_i64))
            .prop_map(|(service, ip, ports, created)| Step::PutService { service, ip, ports, created }),
        2 => (0..SERVICES.len()).prop_map(Step::DeleteService),
        8 => (0..SLICES.len(), 0..OWNERS.len(), 0..SLICE_PORTS.len(), any::<u8>())
            .prop_map(|(slice, owner, ports, endpoints)| Step::PutSlice { slice, owner, ports, endpoints }),
        2 => (0..SLICES.len()).prop_map(Step::DeleteSlice),
        12 => (watch(), 1..6_usize).prop_map(|(watch, count)| Step::Deliver(watch, count)),
        4 => (2..12_usize).prop_map(Step::DeliverTogether),
        2 => watch().prop_map(Step::Repeat),
        2 => watch().prop_map(Step::Relist),
        1 => (watch(), 0..4_usize).prop_map(|(watch, after)| Step::RelistThatBreaksOff(watch, after)),
        1 => Just(Step::Restart),
        3 => prop::collection::vec(prop::bool::weighted(0.4), 1..12).prop_map(Step::Fail),
    ]
}

/// With restarts that choose otherwise.
pub(super) fn step_with_tables() -> impl Strategy<Value = Step> {
    prop_oneof![20 => step(), 1 => Just(Step::RestartOtherwise)]
}
