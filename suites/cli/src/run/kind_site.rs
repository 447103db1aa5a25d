//! The kind cluster of a run: new or reused, and shared by all cases.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use cluster::{Cluster, ClusterError};
use harness::{case::Case, cleanup::Made, report::CaseReport, verdict::Verdict};
use kind::{Existing, KindCluster, KindConfig, Step};
use tokio::{sync::OnceCell, time::sleep};

use crate::{cluster::ClusterRef, repair, terminal};

use super::{
    disorder::Disorder,
    machine, namespace_deletion,
    process::{self, At, End, Settings, without_run},
    progress::Line,
    schedule::Site,
    seconds,
};

/// How long its API server may be away until the cluster counts as lost: as for existing clusters
/// ([`existing::LIMITS`]).
const AWAY: Duration = existing::LIMITS.lease_awaited;
/// Interval between checks of the API server.
const LOOK: Duration = existing::LIMITS.lease_renewed;

/// The only cluster of a run.
#[derive(Debug)]
pub(super) struct KindSite<'a> {
    settings: &'a Settings,
    config: KindConfig,
    existing: Existing,
    up: OnceCell<Arc<KindCluster>>,
    /// Why no further case starts in the cluster.
    lost: OnceCell<String>,
    /// How often the API server did not answer although no case could be the cause.
    absences: AtomicU64,
    /// Whether a case has left something on nodes that could not be undone.
    disorder: Disorder,
}

impl<'a> KindSite<'a> {
    pub(super) fn new(settings: &'a Settings, config: KindConfig, existing: Existing) -> Self {
        Self {
            settings,
            config,
            existing,
            up: OnceCell::new(),
            lost: OnceCell::new(),
            absences: AtomicU64::new(0),
            disorder: Disorder::default(),
        }
    }

    pub(super) fn cluster(cluster: &Arc<KindCluster>) -> &Cluster {
        cluster.cluster()
    }

    /// Removes the cluster, or prints how to use it if it stays.
    ///
    /// # Errors
    /// The cluster could not be removed.
    pub(super) async fn close(&self) -> anyhow::Result<()> {
        let Some(cluster) = self.up.get() else {
            return Ok(());
        };
        let name = cluster.name();
        if self.settings.keep || self.existing == Existing::Use {
            // The load balancer and the controllers end with this process, and nothing would remove finalizers.
            let ended = namespace_deletion::all(cluster.cluster(), self.settings).await;
            let kept = cluster.keep().await;
            terminal::message(&format!(
                "the kind cluster {name} stays up, KUBECONFIG={}: `plumbline run --provider kind --reuse {name}` uses it, \
                 `kind delete cluster --name {name}` and then `plumbline cleanup --kind {name}` remove it",
                cluster.kubeconfig().display()
            ));
            kept.with_context(|| {
                format!(
                    "the verdicts stand, but not everything was undone; `plumbline heal --kind {name}` does, when its API answers"
                )
            })?;
            ended.context(
                "the verdicts stand, but namespaces of cases are left; `plumbline cleanup` removes them",
            )?;
            ensure!(
                !self.disorder.is_left(),
                "the verdicts stand, but nodes of {name} have what a case did to them: `plumbline heal --kind {name}` undoes it"
            );
            return Ok(());
        }
        terminal::stage("removing the kind cluster");
        let began = Instant::now();
        let down = kind::down(name).await;
        down.with_context(|| {
            format!("the verdicts stand, but the kind cluster {name} could not be removed")
        })?;
        terminal::step(&format!("removed: {}", seconds(began.elapsed())));
        Ok(())
    }

    /// Why the cluster is lost: a node has ended, or its API server does not answer for [`AWAY`]. A lost cluster stays
    /// lost, because results before and after can't be compared.
    async fn lost(&self, kind: &KindCluster, line: Option<&Line<'_>>) -> Option<&str> {
        let began = Instant::now();
        let mut is_away = false;
        while self.lost.get().is_none() {
            let error = match kind.cluster().intact().await {
                Ok(()) => {
                    if is_away && let Some(line) = line {
                        line.phase(&format!(
                            "the API server answers again after {}",
                            seconds(began.elapsed())
                        ));
                    }
                    return None;
                }
                Err(error) => error,
            };
            let may_come_back = !matches!(error, ClusterError::NotFound { .. })
                && began.elapsed() < AWAY
                && !self.settings.interrupted.is_cancelled();
            if may_come_back {
                if !std::mem::replace(&mut is_away, true) {
                    self.absences.fetch_add(1, Ordering::Relaxed);
                    if let Some(line) = line {
                        line.phase(&format!(
                            "waits for the API server, for up to {}: {error}",
                            seconds(AWAY)
                        ));
                    }
                }
                sleep(LOOK).await;
                continue;
            }
            let name = kind.name();
            let why = format!(
                "the kind cluster {name} does not answer any more: {error}. Expected that all its nodes run: `docker ps --all \
                 --filter label=io.x-k8s.kind.cluster={name}` shows them"
            );
            // The first caller has set the reason.
            let _ = self.lost.set(why);
        }
        self.lost.get().map(String::as_str)
    }

    /// Heals the remains of a case that died or could not undo its faults: API servers, nodes and their agents,
    /// namespaces. Returns what was undone, and what can't be.
    async fn after_death(&self, kind: &KindCluster, case: Case) -> Vec<String> {
        let mut warnings = Vec::new();
        // API servers come first: the rest needs them.
        match kind.settle().await {
            Ok(repaired) => warnings.extend(repaired),
            Err(error) => warnings.push(error.to_string()),
        }
        let cluster: &Cluster = kind.cluster();
        if case.disruptive {
            match repair::nodes(cluster, None).await {
                Ok(all) => {
                    if all.iter().any(|healed| !healed.held.is_empty()) {
                        self.disorder.begins();
                    }
                    let words = all.into_iter().flat_map(|healed| [healed.undone, healed.held]);
                    warnings.extend(words.flatten());
                }
                Err(error) => {
                    self.disorder.begins();
                    warnings.push(format!("what the case did to nodes stays: {error:#}"));
                }
            }
        }
        if !self.settings.keep {
            let (run, limit) = (&self.settings.run, self.settings.limits.cleanup);
            let made = Made {
                run,
                case: Some(case.id),
                confined: None,
            };
            let cleaned = made.cleanup(&cluster.client(), limit).await;
            warnings.extend(cleaned.err().map(|halt| halt.to_string()));
        }
        warnings
    }
}

impl Site for KindSite<'_> {
    type Lab = Arc<KindCluster>;

    fn name<'a>(&self, cluster: &'a Arc<KindCluster>) -> &'a str {
        cluster.name()
    }

    async fn make(&self) -> anyhow::Result<Arc<KindCluster>> {
        if let Some(up) = self.up.get()
            && let Some(why) = self.lost(up, None).await
        {
            bail!("{why}");
        }
        let step = |step: &Step| terminal::step(&format!("{}: {}", step.what, seconds(step.took)));
        let up = async || {
            KindCluster::up(&self.config, self.existing, step)
                .await
                .map(Arc::new)
        };
        Ok(Arc::clone(self.up.get_or_try_init(up).await?))
    }

    async fn run(&self, cluster: &Arc<KindCluster>, case: Case, line: &Line<'_>) -> CaseReport {
        if let Some(why) = self.lost(cluster, Some(line)).await {
            let why = why.to_owned();
            return without_run(&case, self.settings, Verdict::Inconclusive { why });
        }
        if let Err(error) = self.disorder.undo(cluster.cluster()).await {
            let why = format!("nodes have what a case before did to them: {error:#}");
            return without_run(&case, self.settings, Verdict::Inconclusive { why });
        }
        namespace_deletion::few(cluster.cluster(), self.settings, line).await;
        let (at, absences) = (
            ClusterRef::Kind(cluster.name().to_owned()),
            self.absences(cluster),
        );
        let End {
            mut report,
            is_its_own,
        } = process::run(self.settings, At::all_of(&at), case, line).await;
        if let Some(why) = self.lost(cluster, Some(line)).await {
            report.warnings.push(why.to_owned());
        } else if !is_its_own || self.absences(cluster) > absences {
            // Faults that the case could not undo while the API server was away would disturb the next try.
            report.warnings.extend(self.after_death(cluster, case).await);
        }
        report
    }

    fn absences(&self, _: &Arc<KindCluster>) -> u64 {
        self.absences.load(Ordering::Relaxed)
    }

    /// The nodes run on this machine.
    async fn room(&self) {
        machine::room_of_kind().await;
    }

    /// Cases share the API servers and the outside client.
    fn parts(&self, _: &Arc<KindCluster>) -> usize {
        1
    }

    async fn is_intact(&self, cluster: &Arc<KindCluster>) -> bool {
        self.lost(cluster, None).await.is_none()
    }

    async fn end(&self, _: Arc<KindCluster>) -> anyhow::Result<()> {
        // All cases share the cluster: it is closed after the last.
        Ok(())
    }
}
