//! `plumbline case`: one case in a process of its own, so that one that hangs or dies takes nothing with it.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context as _, bail};
use cluster::{
    Cluster,
    user_file::{self, MOST_BYTES},
};
use existing::{About, KubernetesCluster, extension};
use harness::{
    context::Options,
    evidence::Evidence,
    execute::execute,
    limits::{Limits, Profile},
    turns::Turns,
};
use kind::KindCluster;
use lab::LabCluster;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

use crate::near::near;

/// Run one case in a running cluster. Its report is `case.json` in its folder. It is interrupted when its stdin ends.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Its id
    pub(crate) id: String,
    /// The lab
    #[arg(long, required_unless_present_any = ["cluster", "kind"])]
    pub(crate) lab: Option<String>,
    /// A file that tells of the cluster
    #[arg(long, conflicts_with = "lab")]
    pub(crate) cluster: Option<PathBuf>,
    /// The only node that the case may use: others disturb the rest meanwhile
    #[arg(long, requires = "cluster")]
    pub(crate) node: Option<String>,
    /// The cluster of kind
    #[arg(long, conflicts_with_all = ["lab", "cluster"])]
    pub(crate) kind: Option<String>,
    /// Name of the run
    #[arg(long)]
    pub(crate) run: String,
    /// Seed of the run
    #[arg(long)]
    pub(crate) seed: u64,
    /// The command that runs it again
    #[arg(long)]
    pub(crate) replay: String,
    /// What kind of limits
    #[arg(long)]
    pub(crate) profile: Profile,
    /// Multiplies limits
    #[arg(long)]
    pub(crate) timeout_scale: f64,
    /// Probes that a client begins in a second
    #[arg(long)]
    pub(crate) rate: u32,
    /// Folder for report and evidence
    #[arg(long)]
    pub(crate) folder: PathBuf,
    /// Of which cases everything is kept
    #[arg(long)]
    pub(crate) evidence: Evidence,
    /// Leaves its namespaces
    #[arg(long)]
    pub(crate) keep: bool,
}

pub(crate) async fn case(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let case = cases::find(&arguments.id).with_context(|| {
        let near = near(&arguments.id, cases::ALL.iter().map(|case| case.id));
        format!(
            "there is no case {}{near}: `plumbline list` shows all",
            arguments.id
        )
    })?;
    // Before anything is made that an interruption would leave.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut orphaned = end_of_stdin();
    let cluster = match &arguments.kind {
        Some(name) => Arc::new(KindCluster::attach(name).await?.into_cluster()),
        None => {
            let node = arguments.node.as_deref();
            attach(arguments.lab.as_deref(), arguments.cluster.as_deref(), node).await?
        }
    };
    let options = Options {
        run: arguments.run,
        seed: arguments.seed,
        replay: arguments.replay,
        limits: Limits::of(arguments.profile)
            .scaled(arguments.timeout_scale)
            .with_rate(arguments.rate),
        folder: arguments.folder,
        evidence: arguments.evidence,
        keep: arguments.keep,
        turns: arguments.lab.is_some().then(Turns::of_this_machine),
        // Nobody may be there to read it.
        progress: Arc::new(|phase| drop(writeln!(io::stdout(), "{phase}"))),
    };
    let interrupted = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = &mut orphaned => {}
        }
    };
    let report = execute(case, cluster, options, interrupted).await;
    Ok(ExitCode::from(u8::from(report.verdict.fails_the_run())))
}

async fn attach(
    lab: Option<&str>,
    cluster: Option<&Path>,
    node: Option<&str>,
) -> anyhow::Result<Arc<dyn Cluster>> {
    match (lab, cluster) {
        (Some(name), _) => Ok(Arc::new(LabCluster::attach(name).await?)),
        (None, Some(file)) => {
            let text = user_file::read(file, MOST_BYTES)
                .with_context(|| format!("failed to read {}", file.display()))?;
            let mut about: About = serde_json::from_str(&text)
                .with_context(|| format!("{} is no description of a cluster", file.display()))?;
            if let Some(node) = node {
                about.description.keep_to(node);
            }
            let extension = extension(&about.options).await?;
            Ok(Arc::new(KubernetesCluster::attach(about, extension).await?))
        }
        (None, None) => bail!("expected --lab or --cluster"),
    }
}

/// Resolves when stdin ends: whoever started this process is gone, and nobody else would clean up.
fn end_of_stdin() -> oneshot::Receiver<()> {
    let (ended, end) = oneshot::channel();
    // A thread of its own: the runtime would wait for its end before it lets the process go.
    std::thread::spawn(move || {
        // An error is an end, too.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = ended.send(());
    });
    end
}
