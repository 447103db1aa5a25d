//! Cases side by side, disruptive ones alone and last.

use std::sync::{Arc, OnceLock};

use futures::{StreamExt as _, stream};
use harness::{case::Case, execute::cleanup, report::CaseReport, verdict::Verdict};
use lab::cluster::Cluster;
use rand::{SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};

use super::{
    exempt::{self, fails_the_run},
    process::{self, End, Settings, without_run},
    progress::Progress,
    select::Selection,
};

/// What was chosen, under way.
struct Schedule<'a> {
    settings: &'a Settings,
    cluster: &'a dyn Cluster,
    progress: &'a Progress,
    /// The case after which no other begins.
    stopped_by: OnceLock<&'static str>,
}

/// Runs what is selected. Reports are in the order of the catalogue, each with the reason if it is exempt.
pub(super) async fn all(
    settings: &Settings,
    cluster: &dyn Cluster,
    selection: Selection,
    progress: &Progress,
) -> Vec<(CaseReport, Option<String>)> {
    let schedule = Schedule {
        settings,
        cluster,
        progress,
        stopped_by: OnceLock::new(),
    };
    let mut reports: Vec<CaseReport> = selection
        .excluded
        .into_iter()
        .map(|(case, verdict)| without_run(&case, settings, verdict))
        .collect();
    let (together, alone) = order(selection.run, settings.shuffle.then_some(settings.seed));
    let running = together.into_iter().map(|case| schedule.one(case));
    reports.extend(
        stream::iter(running)
            .buffer_unordered(settings.jobs)
            .collect::<Vec<_>>()
            .await,
    );
    for case in alone {
        reports.push(schedule.one(case).await);
    }
    let place = |report: &CaseReport| cases::ALL.iter().position(|case| case.id == report.id);
    reports.sort_by_key(place);
    let with_exemption = |report: CaseReport| {
        let exempt = cases::find(&report.id).and_then(|case| exempt::reason(&case, &settings.exemptions));
        (report, exempt)
    };
    reports.into_iter().map(with_exemption).collect()
}

/// Cases that run side by side and those that run alone after them, each in their order.
fn order(run: Vec<Case>, shuffled_by: Option<u64>) -> (Vec<Case>, Vec<Case>) {
    let (mut alone, mut together): (Vec<Case>, Vec<Case>) = run.into_iter().partition(|case| case.disruptive);
    match shuffled_by {
        // What takes longest begins first, so that nothing long is left for the end.
        None => together.sort_by_key(|case| std::cmp::Reverse(case.longest)),
        Some(seed) => {
            let mut random = StdRng::seed_from_u64(seed);
            together.shuffle(&mut random);
            alone.shuffle(&mut random);
        }
    }
    (together, alone)
}

impl Schedule<'_> {
    async fn one(&self, case: Case) -> CaseReport {
        if let Some(why) = self.over() {
            return without_run(&case, self.settings, Verdict::Inconclusive { why });
        }
        let line = Arc::new(self.progress.begin(&case));
        let End {
            mut report,
            is_its_own,
        } = process::run(self.settings, case, &line).await;
        if !is_its_own {
            report
                .warnings
                .extend(after_death(self.settings, self.cluster, &case).await);
        }
        let exempt = exempt::reason(&case, &self.settings.exemptions);
        if self.settings.fail_fast && fails_the_run(&report.verdict, exempt.as_deref()) {
            self.stopped_by.get_or_init(|| case.id);
        }
        line.end(&report, exempt.is_some());
        report
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

/// Heals what a case that died has left: namespaces, stopped agents. Returns what can't be healed.
async fn after_death(settings: &Settings, cluster: &dyn Cluster, case: &Case) -> Vec<String> {
    let mut warnings = Vec::new();
    if case.disruptive {
        for node in &cluster.describe().nodes {
            let started = match cluster.agent(&node.name).await {
                Ok(state) if state.pid.is_none() => cluster.start_agent(&node.name).await,
                state => state.map(drop),
            };
            warnings.extend(
                started
                    .err()
                    .map(|error| format!("the agent of {} stays down: {error}", node.name)),
            );
        }
    }
    if !settings.keep {
        let cleaned = cleanup(
            &cluster.client(),
            &settings.run,
            Some(case.id),
            settings.limits.cleanup,
        )
        .await;
        warnings.extend(cleaned.err().map(|halt| halt.to_string()));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(cases: &[Case]) -> Vec<&'static str> {
        cases.iter().map(|case| case.id).collect()
    }

    #[test]
    fn a_seed_decides_the_order_and_what_runs_alone_stays_last() {
        let all = cases::ALL.to_vec();
        let (together, alone) = order(all.clone(), None);
        assert!(together.windows(2).all(|pair| pair[0].longest >= pair[1].longest));
        assert!(alone.iter().all(|case| case.disruptive) && together.iter().all(|case| !case.disruptive));
        let orders: std::collections::BTreeSet<Vec<&str>> = (0..20)
            .map(|seed| ids(&order(all.clone(), Some(seed)).0))
            .collect();
        assert!(orders.len() > 10, "{orders:?}");
        assert_eq!(ids(&order(all.clone(), Some(7)).0), ids(&order(all, Some(7)).0));
        assert_eq!(together.len() + alone.len(), cases::ALL.len());
    }
}
