//! What cases have left on nodes of a cluster that others share.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::bail;
use cluster::Cluster;
use tokio::sync::Mutex;

use crate::repair;

/// Whether something is left that could not be undone when its case ended, for instance because no API server answered.
#[derive(Debug, Default)]
pub(super) struct Disorder {
    is_left: AtomicBool,
    /// Held while it is undone: of cases that begin at once, one undoes it, and the others wait.
    undoing: Mutex<()>,
}

impl Disorder {
    pub(super) fn begins(&self) {
        self.is_left.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Relaxed)
    }

    /// Undoes it, if something is left: cases that run on such nodes would decide nothing, or fail. No other case may have done
    /// something to nodes meanwhile.
    ///
    /// # Errors
    /// What still can't be undone.
    pub(super) async fn undo(&self, cluster: &Cluster) -> anyhow::Result<()> {
        let _undoing = self.undoing.lock().await;
        if !self.is_left() {
            return Ok(());
        }
        let healed = repair::nodes(cluster, None).await?;
        if let Some(held) = healed.iter().flat_map(|healed| &healed.held).next() {
            bail!("{held}");
        }
        self.is_left.store(false, Ordering::Relaxed);
        Ok(())
    }
}
