//! Cases by seed and number, until one differs.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use lb_abi::Counter;
use proptest::{
    strategy::{BoxedStrategy, Strategy as _, ValueTree as _},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use super::{
    case::{Case, Past},
    compare::{Surroundings, judge},
    kernel::{Kernel, KernelError},
    pool,
    row::Row,
    shrink::{Mismatch, again, shrink},
    sockets::Sockets,
};
use crate::model::{Input, NodeSockets, Observed, Outcome, Routes, State};

/// Computes what is permitted: [`model::expected`](crate::model::expected), or in tests of the fuzzing a wrong one.
pub type Model = fn(&State, &Input<'_>, &Observed<'_>) -> Outcome;

/// How much is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// From which all cases are drawn.
    pub seed: u64,
    /// The number of the first case.
    pub first: u64,
    /// How many cases.
    pub cases: u64,
    /// After this no case is begun.
    pub time: Option<Duration>,
}

/// What was run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Cases that were run to their end, or to their difference.
    pub cases: u64,
    /// Packets.
    pub packets: u64,
    /// How long it took.
    pub took: Duration,
    /// How often each counter was expected, and found.
    pub counters: BTreeMap<Counter, u64>,
    /// The first difference.
    pub mismatch: Option<Box<Row>>,
}

/// The programs and the model, side by side.
pub struct Fuzzer<'a> {
    kernel: &'a mut Kernel,
    model: Model,
    routes: Routes,
    sockets: NodeSockets,
    strategy: BoxedStrategy<Case>,
}

impl<'a> Fuzzer<'a> {
    /// Of these programs and this model, on a node with these sockets.
    pub fn new(kernel: &'a mut Kernel, model: Model, sockets: &Sockets) -> Self {
        Self {
            kernel,
            model,
            routes: pool::routes(),
            sockets: sockets.modelled(),
            strategy: Case::strategy().boxed(),
        }
    }

    /// Runs cases until one differs or the limits are reached. `progress` is called after each case with how many there
    /// have been, and may break it off.
    ///
    /// # Errors
    /// [`KernelError`]: a case could not be run.
    pub fn run(
        &mut self,
        limits: &Limits,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Report, KernelError> {
        let began = Instant::now();
        let mut report = Report {
            cases: 0,
            packets: 0,
            took: Duration::ZERO,
            counters: BTreeMap::new(),
            mismatch: None,
        };
        for number in limits.first..limits.first.saturating_add(limits.cases) {
            if limits.time.is_some_and(|limit| began.elapsed() > limit) {
                break;
            }
            let case = drawn(&self.strategy, limits.seed, number);
            report.cases += 1;
            if let Some(mismatch) = self.case(&case, &mut report)? {
                let mismatch = self.least(mismatch)?;
                report.mismatch = Some(Box::new(Row::new(limits.seed, number, mismatch)));
                break;
            }
            if progress(report.cases).is_break() {
                break;
            }
        }
        report.took = began.elapsed();
        Ok(report)
    }

    fn case(&mut self, case: &Case, report: &mut Report) -> Result<Option<Mismatch>, KernelError> {
        let mut state = case.state(Kernel::now()?);
        self.kernel.set(&state)?;
        let mut past = Past::default();
        for index in 0..case.packets() {
            let shot = case.shot(index, &past);
            let answered = [0, 1].map(|later| {
                let now = Kernel::now().map(|now| now + later);
                now.map(|now| (now, self.kernel.rejects(now)))
            });
            let observation = self.kernel.run(&shot)?;
            let around = Surroundings {
                model: self.model,
                routes: &self.routes,
                sockets: &self.sockets,
            };
            let known: BTreeMap<_, _> = answered.into_iter().collect::<Result<_, _>>()?;
            let rejects = |now: u32| known.get(&now).copied().unwrap_or_default();
            let (outcome, differences) = judge(around, &state, &shot, &observation, rejects);
            report.packets += 1;
            *report.counters.entry(observation.counter).or_default() += 1;
            if !differences.is_empty() {
                return Ok(Some(Mismatch {
                    now: observation.clock.1,
                    state,
                    shot,
                    outcome,
                    observation,
                    differences,
                }));
            }
            past.add(&shot, &observation);
            state = observation.state;
        }
        Ok(None)
    }

    /// The least that differs in the same way; as it was, if it differs only after what came before.
    fn least(&mut self, mismatch: Mismatch) -> Result<Mismatch, KernelError> {
        let around = Surroundings {
            model: self.model,
            routes: &self.routes,
            sockets: &self.sockets,
        };
        let (state, shot) = (&mismatch.state, &mismatch.shot);
        let again = again(self.kernel, around, &mismatch, state, shot)?;
        match again {
            Some(again) => shrink(self.kernel, around, again),
            None => Ok(mismatch),
        }
    }
}

/// A case of a seed.
pub(crate) fn drawn<T: Debug>(strategy: &BoxedStrategy<T>, seed: u64, number: u64) -> T {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let tree = strategy.new_tree(&mut runner);
    tree.expect("no part of a case is ever refused").current()
}
