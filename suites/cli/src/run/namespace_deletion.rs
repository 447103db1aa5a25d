//! Namespaces of ended cases, in a cluster that all cases share: they are deleted while other cases run.

use cluster::Cluster;
use harness::cleanup::Made;

use super::{process::Settings, progress::Line};

/// Limit of cases whose namespaces are being deleted when another begins. A case has about five pods on a node, and a
/// kubelet runs 110 in all, including those of the cluster's users.
const MOST_ENDING: usize = 4;

/// Waits until namespaces of only a few cases are being deleted, at most as long as one case's removal may take. The
/// end of the run waits for the rest and reports it.
pub(super) async fn few(cluster: &Cluster, settings: &Settings, line: &Line<'_>) {
    tokio::select! {
        ended = until(cluster, settings, MOST_ENDING) => if let Err(why) = ended {
            line.phase(&format!("begins although {why}"));
        },
        () = settings.interrupted.cancelled() => {}
    }
}

/// Waits until no namespace is being deleted.
///
/// # Errors
/// Some namespaces remain.
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
