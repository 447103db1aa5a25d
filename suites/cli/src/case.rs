//! `plumbline case`: one case in a process of its own, so that one that hangs or dies takes nothing with it.

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context as _;
use harness::{
    context::Options,
    execute::execute,
    limits::{Limits, Profile},
};
use lab::{cluster::Cluster, embedded::LabCluster};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

/// Run one case in a running lab. Its report is `case.json` in its folder. It is interrupted when its stdin ends.
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
    /// What kind of limits
    #[arg(long)]
    pub(crate) profile: Profile,
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
    let mut orphaned = end_of_stdin();
    let cluster: Arc<dyn Cluster> = Arc::new(LabCluster::attach(&arguments.lab).await?);
    let options = Options {
        run: arguments.run,
        seed: arguments.seed,
        replay: arguments.replay,
        limits: Limits::of(arguments.profile).scaled(arguments.timeout_scale),
        folder: arguments.folder,
        keep: arguments.keep,
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
