//! Namespaces of cases that have ended, in a cluster that all cases share: they end beside the cases that follow.

use cluster::Cluster;
use harness::cleanup::Made;

use super::{process::Settings, progress::Line};

/// Of so many cases, namespaces may be ending when another begins. A case has some five pods on a node, and a kubelet runs 110 in
/// all, those of the cluster's users among them.
const MOST_ENDING: usize = 4;

/// Waits until namespaces of a few cases at most are ending, for as long as one case's removal may take; what is left then is
/// waited for at the run's end, which reports it.
pub(super) async fn few(cluster: &Cluster, settings: &Settings, line: &Line<'_>) {
    tokio::select! {
        ended = until(cluster, settings, MOST_ENDING) => if let Err(why) = ended {
            line.phase(&format!("begins although {why}"));
        },
        () = settings.interrupted.cancelled() => {}
    }
}

/// Waits until none is ending.
///
/// # Errors
/// What is left.
pub(super) async fn all(cluster: &Cluster, settings: &Settings) -> anyhow::Result<()> {
    until(cluster, settings, 0)
        .await
        .map_err(|why| anyhow::anyhow!("{why}"))
}

async fn until(cluster: &Cluster, settings: &Settings, most: usize) -> Result<(), String> {
    let confined = cluster.describe().confined.as_deref();
    if confined.is_some() {
        return Ok(());
    }
    let made = Made {
        run: &settings.run,
        case: None,
        confined,
    };
    let ended = made
        .until_few_end(&cluster.client(), most, settings.limits.cleanup)
        .await;
    ended.map_err(|halt| halt.to_string())
}
