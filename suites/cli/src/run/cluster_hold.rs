//! The cluster that a run holds: the run's objects there, and whether its API server answers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::bail;
use cluster::Cluster;
use existing::{Guard, LIMITS, LeaseState, LeaseWatch, Tier, give_back};
use harness::{case::Case, cleanup::Made, verdict::Halt};
use tokio::sync::Mutex;

use crate::{cluster::ClusterRef, repair, terminal};

use super::{disorder::Disorder, process::Settings, progress::Line, seconds};

/// A shorter absence of the API server is not shown.
const SHOWN_AFTER: Duration = Duration::from_secs(2);

/// A cluster that the run holds exclusively.
#[derive(Debug)]
pub(super) struct HeldCluster {
    pub(super) cluster: Cluster,
    /// The run's permissions.
    pub(super) tier: Tier,
    /// The reference for processes of cases.
    pub(super) found: ClusterRef,
    pub(super) guard: Mutex<Option<Guard>>,
    pub(super) lease: LeaseWatch,
    /// Whether a case has left something on nodes that could not be undone.
    pub(super) disorder: Disorder,
}

impl HeldCluster {
    pub(super) fn cluster(held: &Arc<Self>) -> &Cluster {
        &held.cluster
    }

    /// Waits while the API server is away, within the limit of the Lease, and shows a message; returns `None` if the
    /// run is interrupted meanwhile.
    ///
    /// # Errors
    /// The Lease is lost.
    pub(super) async fn wait(&self, settings: &Settings, line: &Line<'_>) -> Option<Result<(), String>> {
        let mut lease = self.lease.clone();
        let began = Instant::now();
        let settled = lease.settled();
        tokio::pin!(settled);
        let told = tokio::select! {
            settled = &mut settled => return Some(settled),
            () = settings.interrupted.cancelled() => return None,
            () = tokio::time::sleep(SHOWN_AFTER) => self.lease.now(),
        };
        if let LeaseState::Unanswered { why, .. } = told {
            line.phase(&format!(
                "waits for the API server, for up to {}: {why}",
                seconds(LIMITS.lease_awaited)
            ));
        }
        let settled = tokio::select! {
            settled = settled => settled,
            () = settings.interrupted.cancelled() => return None,
        };
        if settled.is_ok() {
            let waited = seconds(began.elapsed());
            line.phase(&format!(
                "the API server answers again after {waited}, and the Lease is still this run's"
            ));
        }
        Some(settled)
    }

    /// Removes the objects of the run, or of one of its cases.
    pub(super) async fn cleanup(&self, settings: &Settings, case: Option<&str>) -> Result<(), Halt> {
        let made = Made {
            run: &settings.run,
            case,
            confined: self.cluster.describe().confined.as_deref(),
        };
        made.cleanup(&self.cluster.client(), settings.limits.cleanup)
            .await
    }

    /// Heals after a case that died, on its only node if it had one; returns what can't be healed.
    pub(super) async fn after_death(
        &self,
        settings: &Settings,
        case: Case,
        node: Option<&str>,
    ) -> Vec<String> {
        let mut warnings = Vec::new();
        if case.disruptive {
            match repair::nodes(&self.cluster, node).await {
                Ok(all) => {
                    if all.iter().any(|healed| !healed.held.is_empty()) {
                        self.disorder.begins();
                    }
                    warnings.extend(all.into_iter().flat_map(|healed| healed.undone));
                }
                Err(error) => {
                    self.disorder.begins();
                    warnings.push(format!("{error:#}"));
                }
            }
        }
        if !settings.keep {
            let cleaned = self.cleanup(settings, Some(case.id)).await;
            warnings.extend(cleaned.err().map(|halt| halt.to_string()));
        }
        warnings
    }

    /// Returns borrowed objects, and heals what could not be healed before.
    pub(super) async fn settle(&self, run: &str) -> anyhow::Result<()> {
        if self.tier < Tier::Node {
            return Ok(());
        }
        for words in give_back(&self.cluster.client(), Some(run)).await? {
            terminal::step(&words);
        }
        if let (true, Some(why)) = (self.disorder.is_left(), self.lease.lost()) {
            bail!("{}", lost(&why));
        }
        self.disorder.undo(&self.cluster).await
    }
}

/// Reason of an inconclusive case that was stopped because the cluster was lost.
pub(super) fn lost(why: &str) -> String {
    format!("the run has lost the cluster: {why}, so that another run may have disturbed it")
}

/// Reason of an inconclusive case that was stopped because the Lease was about to expire.
pub(super) fn expired() -> String {
    format!(
        "the API server did not renew the run's Lease for {}, so the case was ended before another run may have the cluster",
        seconds(LIMITS.lease_given_up)
    )
}
