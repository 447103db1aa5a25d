//! `plumbline case`: one case in a process of its own, so that one that hangs or dies takes nothing with it.

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::Context as _;
use harness::{context::Options, execute::execute, limits::Limits};
use lab::{cluster::Cluster, embedded::LabCluster};
use tokio::signal::unix::{SignalKind, signal};

/// Run one case in a running lab. Its report is `case.json` in its folder.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Its id
    pub(crate) id: String,
    /// The lab
    #[arg(long)]
    pub(crate) lab: String,
    /// Name of the run
    #[arg(long)]
    pub(crate) run: String,
    /// Seed of the run
    #[arg(long)]
    pub(crate) seed: u64,
    /// The command that runs it again
    #[arg(long)]
    pub(crate) replay: String,
    /// Multiplies limits
    #[arg(long)]
    pub(crate) timeout_scale: f64,
    /// Folder for report and evidence
    #[arg(long)]
    pub(crate) folder: PathBuf,
    /// Leaves its namespaces
    #[arg(long)]
    pub(crate) keep: bool,
}

pub(crate) async fn case(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let case = cases::find(&arguments.id)
        .with_context(|| format!("there is no case {:?}: `plumbline list` shows all", arguments.id))?;
    // Before anything is made that an interruption would leave.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let cluster: Arc<dyn Cluster> = Arc::new(LabCluster::attach(&arguments.lab).await?);
    let options = Options {
        run: arguments.run,
        seed: arguments.seed,
        replay: arguments.replay,
        limits: Limits::scaled(arguments.timeout_scale),
        folder: arguments.folder,
        keep: arguments.keep,
        progress: Arc::new(|phase| println!("{phase}")),
    };
    let interrupted = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let report = execute(case, cluster, options, interrupted).await;
    Ok(ExitCode::from(u8::from(report.verdict.fails_the_run())))
}
