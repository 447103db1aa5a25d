//! The cluster of a run that is there already: one, held for the length of the run.

use std::{io::Write as _, sync::Arc};

use anyhow::Context as _;
use harness::{case::Case, cleanup::Made, report::CaseReport, verdict::Halt};
use lab::{
    cluster::{Cluster as _, Description},
    kubernetes::{Guard, KubernetesCluster, Options, Tier, extension, give_back},
    target::Agent,
};
use tempfile::NamedTempFile;
use tokio::sync::{Mutex, OnceCell};

use crate::repair;

use super::{
    process::{self, At, End, Settings},
    progress::Line,
    schedule::Site,
};

/// The only cluster of a run: cases that disturb others run one after another in it.
#[derive(Debug)]
pub(super) struct Clusters<'a> {
    settings: &'a Settings,
    options: Options,
    held: OnceCell<Arc<Held>>,
}

/// A cluster that the run has for itself.
#[derive(Debug)]
pub(super) struct Held {
    cluster: KubernetesCluster,
    guard: Mutex<Option<Guard>>,
    /// What processes of cases are told of it.
    about: NamedTempFile,
}

impl Held {
    pub(super) fn describe(held: &Arc<Self>) -> &Description {
        held.cluster.describe()
    }

    /// Removes what the run has made, or one of its cases.
    async fn cleanup(&self, settings: &Settings, case: Option<&str>) -> Result<(), Halt> {
        let made = Made {
            run: &settings.run,
            case,
            confined: self.cluster.describe().confined.as_deref(),
        };
        made.cleanup(&self.cluster.client(), settings.limits.cleanup)
            .await
    }
}

impl<'a> Clusters<'a> {
    pub(super) fn new(settings: &'a Settings, options: Options) -> Self {
        Self {
            settings,
            options,
            held: OnceCell::new(),
        }
    }

    async fn hold(&self) -> anyhow::Result<Arc<Held>> {
        let mut cluster =
            KubernetesCluster::survey(self.options.clone(), extension(&self.options).await?).await?;
        let mut about = tempfile::Builder::new().prefix("plumbline-cluster-").tempfile()?;
        if let Some(words) = touches(&self.options) {
            eprintln!("  {words}");
        }
        let guard = Guard::take(&cluster, &who()).await?;
        if let Err(error) = learn(&mut cluster, &mut about).await {
            guard.release().await?;
            return Err(error);
        }
        // What another run has left there would be taken for this target's. It can't be said to be undone by letting go.
        for words in heal(&cluster).await? {
            eprintln!("  of a run that was killed: {words}");
        }
        Ok(Arc::new(Held {
            cluster,
            guard: Mutex::new(Some(guard)),
            about,
        }))
    }

    /// Lets it go: everything that belongs to the run is removed.
    ///
    /// # Errors
    /// What is left.
    pub(super) async fn release(&self) -> anyhow::Result<()> {
        let Some(held) = self.held.get() else {
            return Ok(());
        };
        let settings = self.settings;
        if self.options.tier >= Tier::Node {
            let given_back = give_back(&held.cluster.client(), Some(&settings.run)).await;
            for words in given_back
                .context("the run is over, but agents are not as they were; `plumbline heal` with the kubeconfig does it")?
            {
                eprintln!("  {words}");
            }
        }
        if !settings.keep {
            let cleaned = held.cleanup(settings, None).await;
            cleaned.map_err(|halt| anyhow::anyhow!("{halt}"))?;
        }
        match held.guard.lock().await.take() {
            Some(guard) => guard
                .release()
                .await
                .context("the run is over, but it has left something; `plumbline cleanup` removes it"),
            None => Ok(()),
        }
    }
}

impl Site for Clusters<'_> {
    type Lab = Arc<Held>;

    fn name<'a>(&self, _: &'a Arc<Held>) -> &'a str {
        "the cluster"
    }

    async fn make(&self) -> anyhow::Result<Arc<Held>> {
        self.held.get_or_try_init(|| self.hold()).await.map(Arc::clone)
    }

    async fn run(&self, held: &Arc<Held>, case: Case, line: &Line<'_>) -> CaseReport {
        let at = At::Cluster(held.about.path());
        let End {
            mut report,
            is_its_own,
        } = process::run(self.settings, at, case, line).await;
        if !is_its_own && case.disruptive {
            match repair::nodes(&held.cluster).await {
                Ok(all) => report
                    .warnings
                    .extend(all.into_iter().flat_map(|healed| healed.undone)),
                Err(error) => report.warnings.push(format!("{error:#}")),
            }
        }
        if !is_its_own && !self.settings.keep {
            let cleaned = held.cleanup(self.settings, Some(case.id)).await;
            report.warnings.extend(cleaned.err().map(|halt| halt.to_string()));
        }
        report
    }

    async fn is_intact(&self, held: &Arc<Held>) -> bool {
        let is_held = held
            .guard
            .lock()
            .await
            .as_ref()
            .is_some_and(|guard| !guard.is_lost());
        is_held && held.cluster.intact().await.is_ok()
    }

    async fn end(&self, _: Arc<Held>) -> anyhow::Result<()> {
        // It stays until the run ends.
        Ok(())
    }
}

/// What cases may do to what others have made, in words.
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

/// Gives back what killed runs have borrowed, and undoes what they have left on nodes; what was done, in words.
async fn heal(cluster: &KubernetesCluster) -> anyhow::Result<Vec<String>> {
    if cluster.about().options.tier < Tier::Node {
        return Ok(Vec::new());
    }
    let mut done = give_back(&cluster.client(), None).await?;
    let healed = repair::nodes(cluster).await?;
    done.extend(healed.into_iter().flat_map(|healed| healed.undone));
    Ok(done)
}

/// What is known of a cluster only when it is held, and all of it for the processes of cases.
async fn learn(cluster: &mut KubernetesCluster, about: &mut NamedTempFile) -> anyhow::Result<()> {
    cluster.find_nodes().await?;
    cluster.look_at_hosts().await?;
    serde_json::to_writer(&mut *about, cluster.about())?;
    Ok(about.flush()?)
}

/// Whoever runs this, for others who want the cluster.
fn who() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten();
    let user = user.map_or_else(|| "somebody".to_owned(), |user| user.name);
    let host = nix::unistd::gethostname()
        .ok()
        .and_then(|host| host.into_string().ok());
    format!("{user} on {}", host.as_deref().unwrap_or("an unnamed host"))
}
