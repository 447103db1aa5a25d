//! A run of cases, on a test node made for it.

use std::ops::ControlFlow;

use lb_packets::{
    fuzz::{Fuzzer, Kernel, Limits, Model, Report, Sockets},
    test_node::TestNode,
};

/// What the cases of the tests are drawn from: always the same, so that a failure is there again the next time. Other
/// ones are for `cargo xtask ebpf fuzz`.
pub(crate) const SEED: u64 = 20_260_101;

/// Cases of a test.
pub(crate) const CASES: u64 = 10_000;

/// The first cases of the tests' seed.
pub(crate) const FIRST: Limits = Limits {
    seed: SEED,
    first: 0,
    cases: CASES,
    time: None,
};

/// Runs cases.
pub(crate) fn run(model: Model, limits: &Limits) -> Report {
    let mut reports = run_each(model, &[*limits]);
    reports.pop().unwrap()
}

/// Runs cases of several seeds with the same programs.
pub(crate) fn run_each(model: Model, all: &[Limits]) -> Vec<Report> {
    let _node = TestNode::enter().unwrap();
    let sockets = Sockets::open().unwrap();
    let mut kernel = Kernel::load().unwrap();
    let mut fuzzer = Fuzzer::new(&mut kernel, model, &sockets);
    all.iter()
        .map(|limits| fuzzer.run(limits, |_| ControlFlow::Continue(())).unwrap())
        .collect()
}
