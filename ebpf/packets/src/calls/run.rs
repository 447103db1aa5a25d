//! Cases by seed and number, until one differs; and the least steps that still do.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    time::{Duration, Instant},
};

use lb_abi::Counter;
use proptest::strategy::{BoxedStrategy, Strategy as _};

use super::{
    failure::Failure,
    initial_services::base,
    kernel::{CallError, Kernel, Observation},
    model::{CallResult, Outcome, State, applies},
    step::{Call, Step, steps},
};
use crate::fuzz::{Difference, Limits, drawn, entries, same};

/// Runs of cases that shrinking may take.
const RUNS: usize = 600;
/// How often fewer steps are tried: what is chosen at random may have to be chosen again.
const TRIES: usize = 6;

/// Computes what is permitted: [`permitted`](super::model::permitted), or in tests of the fuzzing a wrong one.
pub type Model = fn(&State, usize, Call, u32) -> Vec<Outcome>;

/// What was run.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// Cases that were run to their end, or to their difference.
    pub cases: u64,
    /// Calls that were made.
    pub calls: u64,
    /// How long it took.
    pub took: Duration,
    /// How often each counter was expected, and found.
    pub counters: BTreeMap<Counter, u64>,
    /// The first difference.
    pub failure: Option<Box<Failure>>,
}

/// The programs and the model, side by side.
pub struct Fuzzer<'a> {
    kernel: &'a mut Kernel,
    model: Model,
    strategy: BoxedStrategy<Vec<Step>>,
}

/// One call that was not as it should have been.
struct Mismatch {
    /// Number of its step.
    at: usize,
    state: State,
    outcome: Outcome,
    differences: Vec<Difference>,
}

impl Mismatch {
    fn failure(self, seed: u64, case: u64, steps: Vec<Step>) -> Failure {
        Failure {
            seed,
            case,
            steps,
            state: self.state,
            outcome: self.outcome,
            differences: self.differences,
        }
    }
}

impl<'a> Fuzzer<'a> {
    /// Of these programs and this model.
    pub fn new(kernel: &'a mut Kernel, model: Model) -> Self {
        Self {
            kernel,
            model,
            strategy: steps().boxed(),
        }
    }

    /// Runs cases until one differs or the limits are reached. `progress` is called after each case with how many there
    /// have been, and may break it off.
    ///
    /// # Errors
    /// [`CallError`]: a case could not be run.
    pub fn run(
        &mut self,
        limits: &Limits,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Report, CallError> {
        let began = Instant::now();
        let mut report = Report::default();
        for number in limits.first..limits.first.saturating_add(limits.cases) {
            if limits.time.is_some_and(|limit| began.elapsed() > limit) {
                break;
            }
            let steps = drawn(&self.strategy, limits.seed, number);
            report.cases += 1;
            if let Some(mismatch) = self.case(&steps, &mut report)? {
                self.kernel.hurry(true);
                let failure = self.least(limits.seed, number, &steps, mismatch);
                self.kernel.hurry(false);
                let failure = failure?;
                report.failure = Some(Box::new(failure));
                break;
            }
            if progress(report.cases).is_break() {
                break;
            }
        }
        report.took = began.elapsed();
        Ok(report)
    }

    /// Runs one case of these steps, without leaving any out if it differs.
    ///
    /// # Errors
    /// [`CallError`]: the case could not be run.
    pub fn run_steps(&mut self, steps: &[Step]) -> Result<Report, CallError> {
        let mut report = Report {
            cases: 1,
            ..Report::default()
        };
        if let Some(mismatch) = self.case(steps, &mut report)? {
            report.failure = Some(Box::new(mismatch.failure(0, 0, steps.to_vec())));
        }
        Ok(report)
    }

    fn case(&mut self, steps: &[Step], report: &mut Report) -> Result<Option<Mismatch>, CallError> {
        let mut state = base(self.kernel.ids());
        self.kernel.begin(&state)?;
        for (at, step) in steps.iter().enumerate() {
            let (slot, call) = match step {
                Step::Change(change) => {
                    change.make(&mut state);
                    self.kernel.set(&state)?;
                    continue;
                }
                Step::Call(slot, call) => (*slot, *call),
            };
            if !applies(&state, slot, call) {
                continue;
            }
            let early = Kernel::now()?;
            let mut outcomes = (self.model)(&state, slot, call, early);
            let observation = self.kernel.run(slot, call, &outcomes)?;
            let late = Kernel::now()?;
            if late != early {
                outcomes.extend((self.model)(&state, slot, call, late));
            }
            report.calls += 1;
            for (counter, times) in &observation.seen.counters {
                *report.counters.entry(*counter).or_default() += times;
            }
            let (mut outcome, differences) = nearest(outcomes, &observation);
            if !differences.is_empty() {
                return Ok(Some(Mismatch {
                    at,
                    state,
                    outcome,
                    differences,
                }));
            }
            if let (Some(cookie), Some(socket)) = (observation.cookie, outcome.state.open.get_mut(&slot)) {
                socket.cookie = cookie;
            }
            state = outcome.state;
        }
        let outcome = Outcome {
            seen: CallResult::default(),
            state: state.clone(),
        };
        let differences = compare(&outcome, &self.kernel.look()?);
        let last = steps.len().saturating_sub(1);
        Ok((!differences.is_empty()).then_some(Mismatch {
            at: last,
            state,
            outcome,
            differences,
        }))
    }

    /// Leaves steps out, as long as the same things differ.
    fn least(
        &mut self,
        seed: u64,
        case: u64,
        steps: &[Step],
        mismatch: Mismatch,
    ) -> Result<Failure, CallError> {
        let mut runs = 0;
        let mut least = (steps[..=mismatch.at].to_vec(), mismatch);
        let mut chunk = least.0.len();
        while chunk > 0 {
            let mut begin = 0;
            while begin + 1 < least.0.len() && runs < RUNS {
                let mut fewer = least.0.clone();
                // The last step is the one that differs.
                let end = (begin + chunk).min(fewer.len() - 1);
                fewer.drain(begin..end);
                runs += TRIES;
                match self.again(&fewer, &least.1)? {
                    Some(found) => least = (fewer[..=found.at].to_vec(), found),
                    None => begin += chunk,
                }
            }
            chunk /= 2;
        }
        let (steps, mismatch) = least;
        Ok(mismatch.failure(seed, case, steps))
    }

    /// The same mismatch by other steps; `None` if it is not there again.
    fn again(&mut self, steps: &[Step], mismatch: &Mismatch) -> Result<Option<Mismatch>, CallError> {
        let what = |mismatch: &Mismatch| {
            let differences = mismatch.differences.iter();
            differences
                .map(|difference| difference.what)
                .collect::<BTreeSet<_>>()
        };
        let mut report = Report::default();
        for _ in 0..TRIES {
            let found = self.case(steps, &mut report)?;
            if let Some(found) = found.filter(|found| what(found) == what(mismatch)) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// The outcome that is nearest to what was done, and what differs from it.
fn nearest(outcomes: Vec<Outcome>, observation: &Observation) -> (Outcome, Vec<Difference>) {
    let judged = outcomes.into_iter().map(|outcome| {
        let differences = compare(&outcome, observation);
        (outcome, differences)
    });
    judged
        .min_by_key(|(_, differences)| differences.len())
        .expect("something is permitted")
}

fn compare(outcome: &Outcome, observation: &Observation) -> Vec<Difference> {
    let mut found = Vec::new();
    let (wanted, seen) = (&outcome.seen, &observation.seen);
    same(&mut found, "error", &wanted.error, &seen.error);
    same(&mut found, "server", &wanted.server, &seen.server);
    same(&mut found, "received", &wanted.received, &seen.received);
    same(&mut found, "shown", &wanted.shown, &seen.shown);
    same(&mut found, "counters", &wanted.counters, &seen.counters);
    same(&mut found, "SERVICE_TRAFFIC", &wanted.services, &seen.services);
    same(&mut found, "BACKEND_TRAFFIC", &wanted.backends, &seen.backends);
    let (wanted, is) = (&outcome.state, &observation.state);
    entries(&mut found, "CHOSEN", &wanted.chosen, &is.chosen);
    entries(&mut found, "SOCKET_REVNAT", &wanted.reverse, &is.reverse);
    entries(&mut found, "SOCKET_BACKEND", &wanted.sockets, &is.sockets);
    entries(&mut found, "AFFINITY", &wanted.maps.affinity, &is.maps.affinity);
    found
}
