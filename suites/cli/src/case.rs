//! `plumbline case`: runs one case in a process of its own, so that a case that hangs or dies stops nothing else.

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context as _;
use cluster::user_file::{self, MOST_BYTES};
use harness::{
    case::Case,
    context::{self, Context},
    evidence::Evidence,
    execute::{Options, execute, execute_with},
    limits::Limits,
    rate_turns::Turns,
};
use scenarios::chaos::{CASE, Given};
use serde::{Deserialize, Serialize};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

use crate::{cluster::ClusterRef, suggestions::unknown};

/// Run one case in a running cluster, as its order describes. The report is `case.json` in the folder of the order. The
/// end of stdin interrupts the case.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Id of the case
    pub(crate) id: String,
    /// The order: a JSON file that `plumbline run` has written, with the cluster and the limits
    pub(crate) order: PathBuf,
}

/// What `plumbline run` passes to the process of a case, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The cluster of the case.
    pub(crate) cluster: ClusterRef,
    /// The only node that the case may use, because other cases use the others.
    pub(crate) node: Option<String>,
    /// Name of the run.
    pub(crate) run: String,
    /// Seed of the run.
    pub(crate) seed: u64,
    /// The command that runs the case again.
    pub(crate) replay: String,
    /// Limits of the case.
    pub(crate) limits: Limits,
    /// Folder for report and evidence.
    pub(crate) folder: PathBuf,
    /// Which cases keep their full evidence.
    pub(crate) evidence: Evidence,
    /// Whether the case leaves its namespaces.
    pub(crate) keep: bool,
    /// What is played in place of a case of the catalogue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) chaos: Option<Given>,
}

pub(crate) async fn case(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let file = arguments.order.display();
    let text =
        user_file::read(&arguments.order, MOST_BYTES).with_context(|| format!("failed to read {file}"))?;
    let order: Order =
        serde_json::from_str(&text).with_context(|| format!("{file} is no order of a case"))?;
    let case = match order.chaos {
        Some(_) => Case {
            // As long as this process.
            id: String::leak(arguments.id),
            ..CASE
        },
        None => cases::find(&arguments.id).with_context(|| {
            let ids = cases::ALL.iter().map(|case| case.id);
            unknown("case", &arguments.id, ids, "plumbline list")
        })?,
    };
    // Before the case makes anything that an interruption would leave.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut orphaned = end_of_stdin();
    let turns = order.cluster.is_lab().then(Turns::of_this_machine);
    let mut cluster = order.cluster.attach().await?;
    if let Some(node) = &order.node {
        cluster = cluster.of_one_node(node);
    }
    let options = Options {
        session: context::Options {
            run: order.run,
            seed: order.seed,
            limits: order.limits,
            turns,
            // The reader of stdout may be gone.
            progress: Arc::new(|phase| drop(writeln!(io::stdout(), "{phase}"))),
        },
        replay: order.replay,
        folder: order.folder,
        evidence: order.evidence,
        keep: order.keep,
    };
    let interrupted = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = &mut orphaned => {}
        }
    };
    let cluster = Arc::new(cluster);
    let report = match order.chaos {
        Some(given) => {
            let folder = options.folder.clone();
            let play = async |cx: &Context| scenarios::chaos::run(cx, given, &folder).await;
            execute_with(case, play, cluster, options, interrupted).await
        }
        None => execute(case, cluster, options, interrupted).await,
    };
    Ok(ExitCode::from(u8::from(report.verdict.fails_the_run())))
}

/// Resolves when stdin ends: the parent process is gone then, and this process must clean up by itself.
fn end_of_stdin() -> oneshot::Receiver<()> {
    let (ended, end) = oneshot::channel();
    // A thread of its own: the runtime would wait for a blocking read before the process exits.
    std::thread::spawn(move || {
        // A read error counts as the end.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = ended.send(());
    });
    end
}
