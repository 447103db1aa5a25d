//! A run of cases, in a process and a cgroup of the test's own.

use std::ops::ControlFlow;

use lb_packets::{
    calls::{Fuzzer, Kernel, Model, Report, Step},
    fuzz::Limits,
};
use testing::isolation::{Own, name_of};

/// What the cases of the tests are drawn from: always the same, so that a failure is there again the next time.
pub(crate) const SEED: u64 = 20_260_301;
/// Cases of a test.
pub(crate) const CASES: u64 = 1_000;

/// Runs the first cases of the tests' seed in a process of its own. `body` is a closure in the test function itself.
#[track_caller]
pub(crate) fn isolated<F: FnOnce(&Runner)>(body: F) {
    if let Some(own) = Own::of(name_of::<F>()) {
        body(&Runner(own));
    }
}

/// Runs cases in a process that has a cgroup.
pub(crate) struct Runner(Own);

impl Runner {
    /// Runs the cases of the tests.
    pub(crate) fn run(&self, model: Model) -> Report {
        let limits = Limits {
            seed: SEED,
            first: 0,
            cases: CASES,
            time: None,
        };
        let mut kernel = self.kernel();
        let mut fuzzer = Fuzzer::new(&mut kernel, model);
        let report = fuzzer.run(&limits, |_| ControlFlow::Continue(()));
        report.expect("all cases can be run")
    }

    /// Runs one case.
    pub(crate) fn run_steps(&self, model: Model, steps: &[Step]) -> Report {
        let mut kernel = self.kernel();
        let report = Fuzzer::new(&mut kernel, model).run_steps(steps);
        report.expect("the case can be run")
    }

    fn kernel(&self) -> Kernel {
        Kernel::load(&self.0.cgroup).expect("programs, sockets and servers")
    }
}
