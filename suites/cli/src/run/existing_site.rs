//! The existing cluster of a run, held for the length of the run.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context as _, bail};
use cluster::target::Agent;
use existing::{
    Guard, KubernetesCluster, KubernetesError, Options, Own, Tested, Tier, give_back, processors,
};
use harness::{case::Case, report::CaseReport, verdict::Verdict};
use tokio::{
    sync::{Mutex, OnceCell},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::{ClusterRef, ExistingArgs},
    repair, terminal,
};

use super::{
    cluster_hold::{self, HeldCluster, lost},
    disorder::Disorder,
    machine, namespace_deletion,
    nodes::{self, Used},
    process::{self, At, End, Settings, without_run},
    progress::Line,
    schedule::Site,
};

/// Shown if objects of the run stay.
const LEFT: &str = "the run is over, but it has left something; `plumbline cleanup` removes it";

/// The only cluster of a run: disruptive cases run one after another in it.
#[derive(Debug)]
pub(super) struct ExistingSite<'a> {
    settings: &'a Settings,
    options: Options,
    held: OnceCell<Arc<HeldCluster>>,
    /// Nodes that a disruptive case has for itself.
    used: Used,
    /// The task that takes hold of the cluster. It continues if its caller stops waiting, so that what it has begun can
    /// be undone.
    coming: Mutex<Option<JoinHandle<anyhow::Result<HeldCluster>>>>,
}

impl<'a> ExistingSite<'a> {
    pub(super) fn new(settings: &'a Settings, options: Options) -> Self {
        Self {
            settings,
            options,
            held: OnceCell::new(),
            used: Used::default(),
            coming: Mutex::new(None),
        }
    }

    async fn hold(&self) -> anyhow::Result<Arc<HeldCluster>> {
        let mut coming = self.coming.lock().await;
        let task = coming.get_or_insert_with(|| {
            let interrupted = self.settings.interrupted.clone();
            tokio::spawn(hold(self.options.clone(), interrupted))
        });
        let held = task.await.context("taking hold of the cluster has failed")?;
        *coming = None;
        Ok(Arc::new(held?))
    }

    /// Releases the cluster: removes everything that belongs to the run, even if the hold was interrupted.
    ///
    /// # Errors
    /// Some objects stay.
    pub(super) async fn release(&self) -> anyhow::Result<()> {
        let held = match (self.held.get(), self.coming.lock().await.take()) {
            (Some(held), _) => Arc::clone(held),
            (None, None) => return Ok(()),
            (None, Some(coming)) => match coming.await.context("taking hold of the cluster has failed")? {
                Ok(held) => Arc::new(held),
                Err(error) if is_interruption(&error) => return Ok(()),
                Err(error) => return Err(error),
            },
        };
        let Some(guard) = held.guard.lock().await.take() else {
            return Ok(());
        };
        terminal::stage("giving the cluster back");
        let settings = self.settings;
        // Nothing can be undone while the API server is away, and it may return.
        let mut lease = held.lease.clone();
        tokio::select! {
            _ = lease.settled() => {}
            () = settings.interrupted.cancelled() => {}
        }
        for node in guard.beyond() {
            terminal::message(&format!(
                "the node {node} can't be reached, and may have what an earlier run has left: `plumbline heal` when it is Ready"
            ));
        }
        let settled = held.settle(&settings.run).await.context(
            "the run is over, but agents or nodes are not as they were; `plumbline heal` with the kubeconfig does it",
        );
        // The record of unhealed nodes is kept first, so that no later step removes it.
        let (guard, left) = if settled.is_ok() && !guard.inherits() {
            (Some(guard), Ok(()))
        } else {
            (None, guard.leave().await.context(LEFT))
        };
        // After a lost Lease, the run's namespace may belong to another run; cases have removed their own.
        let cleaned = if held.lease.lost().is_some() {
            Ok(())
        } else if settings.keep {
            namespace_deletion::all(&held.cluster, settings).await
        } else {
            let cleaned = held.cleanup(settings, None).await;
            cleaned.map_err(|halt| anyhow::anyhow!("{halt}"))
        };
        let released = match guard {
            Some(guard) => guard.release().await.context(LEFT),
            None => Ok(()),
        };
        settled.and(left).and(cleaned).and(released)
    }
}

impl Site for ExistingSite<'_> {
    type Lab = Arc<HeldCluster>;

    fn name<'a>(&self, _: &'a Arc<HeldCluster>) -> &'a str {
        "the cluster"
    }

    async fn make(&self) -> anyhow::Result<Arc<HeldCluster>> {
        let held = self.held.get_or_try_init(|| self.hold()).await?;
        if let Some(why) = held.lease.lost() {
            bail!("{}", lost(&why));
        }
        Ok(Arc::clone(held))
    }

    async fn run(&self, held: &Arc<HeldCluster>, case: Case, line: &Line<'_>) -> CaseReport {
        let without = |why: &str| without_run(&case, self.settings, Verdict::Inconclusive { why: lost(why) });
        let Some(held_again) = held.wait(self.settings, line).await else {
            let why = "the run was interrupted before it began".to_owned();
            return without_run(&case, self.settings, Verdict::Inconclusive { why });
        };
        if let Err(why) = held_again {
            return without(&why);
        }
        namespace_deletion::few(&held.cluster, self.settings, line).await;
        let absences = held.lease.absences();
        // The next run would disturb the case's cleanup, and the cleanup would disturb that run.
        let settings = Settings {
            interrupted: self.settings.interrupted.child_token(),
            ..self.settings.clone()
        };
        let mut lease = held.lease.clone();
        // One node for each such case.
        let disturbs_one = case.disruptive && case.needs.nodes <= 1 && self.parts(held) > 1;
        let own = disturbs_one
            .then(|| self.used.free(&held.cluster.describe().nodes))
            .flatten();
        let at = At {
            cluster: &held.found,
            node: own.as_ref().map(|own| own.name.as_str()),
        };
        let running = process::run(&settings, at, case, line);
        tokio::pin!(running);
        let (end, expired) = tokio::select! {
            end = &mut running => (end, false),
            () = lease.expires() => {
                settings.interrupted.cancel();
                (running.await, true)
            }
        };
        let End {
            mut report,
            is_its_own,
        } = end;
        if matches!(report.verdict, Verdict::Inconclusive { .. }) {
            if expired && !self.settings.interrupted.is_cancelled() {
                report.verdict = Verdict::Inconclusive {
                    why: cluster_hold::expired(),
                };
            }
            // The reason may be an API server that went away a moment ago.
            tokio::select! {
                () = lease.confirmed() => {}
                () = self.settings.interrupted.cancelled() => {}
            }
        }
        let settled = held.wait(self.settings, line).await;
        if let Some(Err(why)) = settled {
            // If the Lease is lost, the next run or `heal` repairs the nodes.
            if !is_its_own && case.disruptive {
                held.disorder.begins();
            }
            if !is_its_own && !self.settings.keep {
                let cleaned = held.cleanup(self.settings, Some(case.id)).await;
                report.warnings.extend(cleaned.err().map(|halt| halt.to_string()));
            }
            return CaseReport {
                started_us: report.started_us,
                seconds: report.seconds,
                warnings: report.warnings,
                evidence: report.evidence,
                ..without(&why)
            };
        }
        // Faults that the case could not undo while the API server was away would disturb the next try.
        if !is_its_own || held.lease.absences() > absences {
            let warnings = held
                .after_death(self.settings, case, own.as_ref().map(|own| &*own.name))
                .await;
            report.warnings.extend(warnings);
        }
        report
    }

    fn absences(&self, held: &Arc<HeldCluster>) -> u64 {
        held.lease.absences()
    }

    /// Reads the nodes' load, if the run may (`--tier node`).
    async fn room(&self) {
        match self.held.get() {
            Some(held) if self.options.tier >= Tier::Node => {
                machine::room_of_nodes(async || nodes::processors(&held.cluster).await).await;
            }
            _ => std::future::pending().await,
        }
    }

    /// Agents are stopped, and nodes disturbed, one at a time.
    fn parts(&self, held: &Arc<HeldCluster>) -> usize {
        if self.options.tier >= Tier::Node {
            held.cluster.describe().nodes.len()
        } else {
            1
        }
    }

    async fn is_intact(&self, held: &Arc<HeldCluster>) -> bool {
        held.lease.lost().is_none() && held.cluster.intact().await.is_ok()
    }

    async fn end(&self, _: Arc<HeldCluster>) -> anyhow::Result<()> {
        // The cluster is released at the end of the run.
        Ok(())
    }
}

/// How many cases run at once, from the resources of the cluster's nodes, and while its nodes are idle. If the cluster
/// can't be read, the survey that follows reports the reason.
pub(super) async fn jobs(existing: &ExistingArgs) -> [usize; 2] {
    if existing.is_confined() {
        return [1, 1];
    }
    let options = existing.clone().cluster(Tested::default(), "", PathBuf::new());
    let always = processors(&options).await.map_or(1, machine::jobs_of_cluster);
    if existing.may_read_nodes() {
        [always, machine::where_idle(always)]
    } else {
        [always; 2]
    }
}

fn is_interruption(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(KubernetesError::Interrupted))
}

/// Surveys the cluster and takes hold of it.
///
/// # Errors
/// The cluster can't be used. On errors and interruptions, everything that was made is removed.
async fn hold(options: Options, interrupted: CancellationToken) -> anyhow::Result<HeldCluster> {
    let survey = async { KubernetesCluster::survey(options.clone(), Own::default()).await };
    let mut surveyed = tokio::select! {
        surveyed = survey => surveyed?,
        () = interrupted.cancelled() => return Err(KubernetesError::Interrupted.into()),
    };
    for words in surveyed.left_out() {
        terminal::step(&format!("not used: {words}"));
    }
    if let Some(words) = touches(&options) {
        terminal::message(&words);
    }
    let mut guard = Guard::take(&surveyed, &run_owner(), &interrupted).await?;
    let ready = async {
        learn(&mut surveyed).await?;
        // Remains of another run would be attributed to this target. Releasing the cluster must not mark
        // them as undone.
        heal(&surveyed).await
    };
    let ready = tokio::select! {
        ready = ready => ready,
        () = interrupted.cancelled() => Err(KubernetesError::Interrupted.into()),
    };
    match ready {
        Ok(is_whole) => {
            if is_whole {
                guard.healed();
            }
        }
        Err(error) => {
            guard.end().await?;
            return Err(error);
        }
    }
    Ok(HeldCluster {
        cluster: surveyed.cluster(),
        tier: options.tier,
        found: ClusterRef::Existing(Box::new(surveyed.about().clone())),
        lease: guard.lease(),
        guard: Mutex::new(Some(guard)),
        disorder: Disorder::default(),
    })
}

/// What cases may change of other owners' objects, as text.
fn touches(options: &Options) -> Option<String> {
    let agents = options
        .tested
        .agents
        .as_ref()
        .filter(|_| options.tier >= Tier::Node)?;
    let Agent {
        namespace,
        daemon_set,
        ..
    } = &agents.agent;
    Some(format!(
        "cases may stop and start agents of the DaemonSet {namespace}/{daemon_set}, which meanwhile has the update strategy \
         OnDelete and an affinity; at its end the run gives it back as it was"
    ))
}

/// Returns what killed runs have borrowed, undoes what they have left on nodes, and prints it; returns whether nothing
/// is left.
async fn heal(cluster: &KubernetesCluster) -> anyhow::Result<bool> {
    if cluster.about().options.tier < Tier::Node {
        return Ok(true);
    }
    let mut done = give_back(&cluster.client(), None).await?;
    let mut is_whole = true;
    for healed in repair::nodes(&cluster.cluster(), None).await? {
        is_whole &= healed.held.is_empty();
        done.extend(healed.undone);
        done.extend(healed.held);
    }
    for words in done {
        terminal::message(&format!("of a run that was killed: {words}"));
    }
    Ok(is_whole)
}

/// Reads facts that are known only once the cluster is held, before it is assembled.
async fn learn(cluster: &mut KubernetesCluster) -> anyhow::Result<()> {
    cluster.find_nodes().await?;
    cluster.look_at_software(None, &Default::default()).await;
    cluster.look_at_hosts().await?;
    Ok(())
}

/// The owner of this run, shown to others who want the cluster.
fn run_owner() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten();
    let user = user.map_or_else(|| "somebody".to_owned(), |user| user.name);
    let host = nix::unistd::gethostname()
        .ok()
        .and_then(|host| host.into_string().ok());
    format!("{user} on {}", host.as_deref().unwrap_or("an unnamed host"))
}
