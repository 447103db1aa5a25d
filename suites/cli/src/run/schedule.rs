//! Cases side by side, disruptive ones alone and last.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use harness::{case::Case, execute::cleanup, report::CaseReport, verdict::Verdict};
use lab::cluster::Cluster;

use super::{
    process::{self, End, Settings, without_run},
    progress::Progress,
    select::Selection,
};

/// Namespaces of a case that died.
const CLEANUP: Duration = Duration::from_secs(30);

/// Runs what is selected. Reports are in the order of the catalogue.
pub(super) async fn all(
    settings: &Settings,
    cluster: &dyn Cluster,
    selection: Selection,
    progress: &Progress,
) -> Vec<CaseReport> {
    let mut reports: Vec<CaseReport> = selection
        .excluded
        .into_iter()
        .map(|(case, verdict)| without_run(&case, settings, verdict))
        .collect();
    let (alone, mut together): (Vec<Case>, Vec<Case>) =
        selection.run.into_iter().partition(|case| case.disruptive);
    // What takes longest begins first, so that nothing long is left for the end.
    together.sort_by_key(|case| std::cmp::Reverse(case.longest));
    let running = together
        .into_iter()
        .map(|case| one(settings, cluster, case, progress));
    reports.extend(
        stream::iter(running)
            .buffer_unordered(settings.jobs)
            .collect::<Vec<_>>()
            .await,
    );
    for case in alone {
        reports.push(one(settings, cluster, case, progress).await);
    }
    let place = |report: &CaseReport| cases::ALL.iter().position(|case| case.id == report.id);
    reports.sort_by_key(place);
    reports
}

async fn one(settings: &Settings, cluster: &dyn Cluster, case: Case, progress: &Progress) -> CaseReport {
    if settings.interrupted.is_cancelled() {
        let why = "the run was interrupted before it began".to_owned();
        return without_run(&case, settings, Verdict::Inconclusive { why });
    }
    let line = Arc::new(progress.begin(&case));
    let End {
        mut report,
        is_its_own,
    } = process::run(settings, case, &line).await;
    if !is_its_own {
        report
            .warnings
            .extend(after_death(settings, cluster, &case).await);
    }
    line.end(&report);
    report
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
        let cleaned = cleanup(&cluster.client(), &settings.run, Some(case.id), CLEANUP).await;
        warnings.extend(cleaned.err().map(|halt| halt.to_string()));
    }
    warnings
}
