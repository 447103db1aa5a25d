//! What is drawn, without a kernel: the model alone decides what becomes of it.

use std::collections::BTreeMap;

use lb_abi::Counter;
use proptest::{
    strategy::{Strategy as _, ValueTree as _},
    test_runner::TestRunner,
};

use super::{
    case::{Case, Past},
    kernel::Observation,
    pool,
    scenario::NOW,
};
use crate::model::{NodeSockets, Observed, Rejects, expected};

/// Cases: enough for the rarest counter.
const CASES: usize = 6_000;

#[test]
fn cases_reach_every_counter_that_does_not_depend_on_the_kernel() {
    let mut runner = TestRunner::deterministic();
    let strategy = Case::strategy();
    let (routes, sockets) = (pool::routes(), NodeSockets::default());
    let mut counters: BTreeMap<Counter, u32> = BTreeMap::new();
    for _ in 0..CASES {
        let case = strategy.new_tree(&mut runner).unwrap().current();
        let mut state = case.state(NOW);
        let mut past = Past::default();
        for index in 0..case.packets() {
            let shot = case.shot(index, &past);
            let observed = Observed {
                counter: Counter::PacketPassed,
                frame: &shot.frame,
                flows: &state.flows,
                pick: index,
            };
            let input = shot.input(NOW, Rejects::default(), (&routes, &sockets));
            let outcome = expected(&state, &input, &observed);
            *counters.entry(outcome.counter).or_default() += 1;
            state.flows = outcome.flows;
            state.affinity = outcome.affinity;
            state.fragments = outcome.fragments;
            let observation = Observation {
                verdict: outcome.verdict,
                counter: outcome.counter,
                frame: outcome.frame,
                state: state.clone(),
                traffic: Default::default(),
                clock: (NOW, NOW),
            };
            past.add(&shot, &observation);
        }
    }
    let unreached: Vec<_> = Counter::ALL
        .into_iter()
        .filter(|counter| *counter >= Counter::PacketPassed && !counters.contains_key(counter))
        .collect();
    // A limit is one of time, two are the kernel's refusals, and one is not what becomes of a packet.
    let kernel = [
        Counter::SnatReused,
        Counter::DroppedFlowsFull,
        Counter::DroppedRejectLimit,
        Counter::DroppedRewrite,
    ];
    let others: Vec<_> = unreached
        .iter()
        .filter(|counter| !kernel.contains(counter))
        .collect();
    assert!(others.is_empty(), "{others:?} not reached; reached: {counters:?}");
}
