//! The cluster of a run that is there already: one, held for the length of the run.

use std::{io::Write as _, sync::Arc};

use anyhow::Context as _;
use harness::{case::Case, cleanup::Made, report::CaseReport, verdict::Halt};
use lab::{
    cluster::{Cluster as _, Description},
    kubernetes::{Guard, KubernetesCluster, Options, extension},
};
use tempfile::NamedTempFile;
use tokio::sync::{Mutex, OnceCell};

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
        let guard = Guard::take(&cluster, &who()).await?;
        if let Err(error) = learn(&mut cluster, &mut about).await {
            guard.release().await?;
            return Err(error);
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

/// What is known of a cluster only when it is held, and all of it for the processes of cases.
async fn learn(cluster: &mut KubernetesCluster, about: &mut NamedTempFile) -> anyhow::Result<()> {
    cluster.find_nodes().await?;
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
