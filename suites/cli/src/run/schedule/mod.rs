//! Concurrent labs and cases: each disruptive case has a lab of its own, all others share one.
//!
//! A disruptive case gets a fresh lab, which is not used again: programs, pins and backing-off agents that it leaves
//! must not meet the next case, and a new lab starts in a fraction of a second. A shared lab that has died is replaced;
//! the cases in it are inconclusive.
//!
//! An existing cluster can't be replaced: all cases share it, and disruptive ones follow when the others have ended. A
//! disruptive case that needs a single node has one exclusively ([`Site::parts`]), since it disturbs only that node,
//! while others use the other nodes. One that needs several nodes has all of them.
//!
//! The first case in the order begins whose lab is available: up to [`Settings::always`] at once, and one more each
//! time that the machine has room ([`Site::room`]), because cases mostly wait. Bounds: [`Settings::jobs`] cases and
//! [`Settings::labs`] labs at once, and no more labs in all than cases, since a shared lab is replaced only after a
//! case ran in it. While cases wait for a shared lab, one of the labs is reserved for them.
//!
//! `state`: what begins next, pure; `order`: the order; `tries`: repetitions.
//!
//! An inconclusive case begins once more after the cases that wait for such a lab, within the bounds of `tries.rs`:
//! alone, or when the machine has room. A case that ran while the API server was away ([`Site::absences`]) begins again
//! beside others, because the machine's load was not the cause.
mod order;
mod state;
#[cfg(test)]
mod tests;
mod tries;

use std::{cell::RefCell, future::Future, sync::OnceLock};

use futures::{StreamExt as _, future::LocalBoxFuture, stream::FuturesUnordered};
use harness::{case::Case, report::CaseReport, verdict::Verdict};

use self::{
    order::order,
    state::{Begin, State},
    tries::{After, Tries},
};
use super::{
    exempt::{self, Exemption, fails_the_run},
    previous_run::Durations,
    process::{Settings, without_run},
    progress::{Line, Progress},
    select::Selection,
};

/// Makes labs and runs cases in them: a trait, so that the schedule can be tested without labs.
pub(super) trait Site {
    /// A running lab.
    type Lab: 'static;

    /// The lab's name for output.
    fn name<'a>(&self, lab: &'a Self::Lab) -> &'a str;

    /// Makes an unused lab.
    fn make(&self) -> impl Future<Output = anyhow::Result<Self::Lab>>;

    /// Runs a case in a lab to its end, whatever the end is; waits until the API server answers.
    fn run(&self, lab: &Self::Lab, case: Case, line: &Line<'_>) -> impl Future<Output = CaseReport>;

    /// How often the lab's API server has gone away so far, not counting the effects of cases.
    fn absences(&self, lab: &Self::Lab) -> u64;

    /// Whether the lab still works.
    fn is_intact(&self, lab: &Self::Lab) -> impl Future<Output = bool>;

    /// Returns when there is room for one more case beside the running ones.
    fn room(&self) -> impl Future<Output = ()>;

    /// Number of parts of the lab: as many as its nodes, where disruptive cases that need one node run concurrently on
    /// one node each; otherwise one.
    fn parts(&self, lab: &Self::Lab) -> usize;

    /// Removes what [`Site::make`] made.
    fn end(&self, lab: Self::Lab) -> impl Future<Output = anyhow::Result<()>>;
}

/// The selected cases.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) selection: Selection,
    pub(super) exemptions: &'a [Exemption],
    /// Durations of cases in the last run.
    pub(super) durations: &'a Durations,
}

/// The result of a run.
#[derive(Debug)]
pub(super) struct Ended {
    /// Reports in the order of the catalogue, each with the reason if the case is exempt.
    pub(super) reports: Vec<(CaseReport, Option<String>)>,
    /// The first error of a lab's removal.
    pub(super) down: anyhow::Result<()>,
}

/// The schedule of a running selection.
struct Schedule<'a, S> {
    settings: &'a Settings,
    site: &'a S,
    exemptions: &'a [Exemption],
    progress: &'a Progress,
    /// The case after which no further case begins.
    stopped_by: OnceLock<&'static str>,
    tries: RefCell<Tries<'a>>,
}

/// Something has ended.
enum Done<Lab> {
    /// The start of the shared lab, with its result.
    Shared(Result<Lab, String>),
    /// A case in the shared lab, and whether that lab is intact.
    Together(After, bool),
    /// A case, the number of its lab's parts, and the result of that lab's removal, if it had its own.
    Alone(After, usize, anyhow::Result<()>),
    /// The removal of a lab.
    Lab(anyhow::Result<()>),
}

/// Runs the selection. `first` is a lab that runs already.
pub(super) async fn all<S: Site>(
    settings: &Settings,
    site: &S,
    first: S::Lab,
    plan: Plan<'_>,
    progress: &Progress,
) -> Ended {
    let Plan {
        selection,
        exemptions,
        durations,
    } = plan;
    let schedule = Schedule {
        settings,
        site,
        exemptions,
        progress,
        stopped_by: OnceLock::new(),
        tries: RefCell::new(Tries::new(settings, &selection.run)),
    };
    let mut reports: Vec<CaseReport> = selection
        .excluded
        .into_iter()
        .map(|(case, verdict)| without_run(&case, settings, verdict))
        .collect();
    let waiting = order(
        selection.run,
        settings.shuffle.then_some(settings.seed),
        durations,
    );
    let at_once = [settings.always.min(settings.jobs), settings.jobs];
    let labs = [settings.labs, site.parts(&first)];
    let mut state = State::new(labs, at_once, waiting, first);
    let mut room = false;
    let mut under_way = FuturesUnordered::new();
    let mut down = Ok(());
    loop {
        if let Some(why) = schedule.over() {
            let without = |case| schedule.without(&case, why.clone());
            reports.extend(state.give_up(|_| true).into_iter().map(without));
        }
        while let Some(begin) = state.next(std::mem::take(&mut room)) {
            under_way.push(schedule.begin(begin));
        }
        let done = tokio::select! {
            done = under_way.next() => done,
            () = site.room(), if state.waits_for_room() => {
                room = true;
                continue;
            }
        };
        let Some(done) = done else {
            break;
        };
        let ended = match done {
            Done::Shared(Ok(lab)) => {
                state.shared_is_up(lab);
                Ok(())
            }
            Done::Shared(Err(why)) => {
                let without = |case| schedule.without(&case, why.clone());
                reports.extend(state.shared_is_not_up().into_iter().map(without));
                Ok(())
            }
            Done::Together(after, is_intact) => {
                state.shared_case_ended(is_intact);
                match after {
                    After::Over(report) => reports.push(*report),
                    After::OnceMore(case) => state.once_more(case),
                    After::Anew(case) => state.anew(case),
                }
                Ok(())
            }
            Done::Alone(after, parts, ended) => {
                state.lone_case_ended(parts);
                match after {
                    After::Over(report) => reports.push(*report),
                    After::OnceMore(case) => state.once_more(case),
                    After::Anew(case) => state.anew(case),
                }
                ended
            }
            Done::Lab(ended) => {
                state.lab_ended();
                ended
            }
        };
        down = down.and(ended);
    }
    drop(under_way);
    // Also of cases that did not begin once more.
    let mut tries = schedule.tries.into_inner();
    for report in &mut reports {
        report.undecided = tries.of(&report.id);
    }
    let place = |report: &CaseReport| cases::ALL.iter().position(|case| case.id == report.id);
    reports.sort_by_key(place);
    let with_exemption = |report: CaseReport| exempt::with_reason(report, exemptions);
    Ended {
        reports: reports.into_iter().map(with_exemption).collect(),
        down,
    }
}

impl<S: Site> Schedule<'_, S> {
    fn begin(&self, what: Begin<S::Lab>) -> LocalBoxFuture<'_, Done<S::Lab>> {
        match what {
            Begin::Share => Box::pin(async { Done::Shared(self.make().await) }),
            Begin::Together(lab, case) => Box::pin(async move {
                let after = self.one(&lab, case).await;
                Done::Together(after, self.site.is_intact(&lab).await)
            }),
            Begin::Alone(lab, case, parts) => Box::pin(async move {
                let made = match lab {
                    Some(lab) => Ok(lab),
                    None => self.make().await,
                };
                match made {
                    Ok(lab) => Done::Alone(self.one(&lab, case).await, parts, self.site.end(lab).await),
                    Err(why) => Done::Alone(After::Over(Box::new(self.without(&case, why))), parts, Ok(())),
                }
            }),
            Begin::End(lab) => Box::pin(async { Done::Lab(self.site.end(lab).await) }),
        }
    }

    async fn make(&self) -> Result<S::Lab, String> {
        let made = self.site.make().await;
        made.map_err(|error| format!("no lab came up for it: {error:#}"))
    }

    async fn one(&self, lab: &S::Lab, case: Case) -> After {
        // Other labs may start meanwhile.
        if let Some(why) = self.over() {
            return After::Over(Box::new(self.without(&case, why)));
        }
        let line = self.progress.begin(&case, self.site.name(lab));
        let absences = self.site.absences(lab);
        let report = self.site.run(lab, case, &line).await;
        if self.over().is_none() {
            let mut tries = self.tries.borrow_mut();
            if self.site.absences(lab) > absences && tries.anew(&case, &report) {
                line.undecided(&report);
                return After::Anew(case);
            }
            if tries.once_more(&case, &report) {
                line.undecided(&report);
                return After::OnceMore(case);
            }
        }
        let exempt = exempt::reason(&report, self.exemptions);
        if self.settings.fail_fast && fails_the_run(&report.verdict, exempt.as_deref()) {
            self.stopped_by.get_or_init(|| case.id);
        }
        line.end(&report, exempt.as_deref());
        After::Over(Box::new(report))
    }

    fn without(&self, case: &Case, why: String) -> CaseReport {
        without_run(case, self.settings, Verdict::Inconclusive { why })
    }

    /// Why no further case begins.
    fn over(&self) -> Option<String> {
        if self.settings.interrupted.is_cancelled() {
            return Some("the run was interrupted before it began".to_owned());
        }
        let by = self.stopped_by.get()?;
        Some(format!(
            "it did not begin, as {by} had failed the run before (--fail-fast)"
        ))
    }
}
