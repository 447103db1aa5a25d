//! What every module of the agent reports to.

use tokio::sync::mpsc;

use crate::{
    ledger::{Ledger, Notice},
    metrics::Metrics,
    readiness::Readiness,
};

/// Readiness, findings and metrics. Clones are the same.
#[derive(Clone, Debug)]
pub struct Reports {
    /// Why this node is not ready.
    pub readiness: Readiness,
    /// Findings about objects.
    pub ledger: Ledger,
    /// Counters and gauges.
    pub metrics: Metrics,
}

impl Reports {
    /// Empty. New findings go to `notices`.
    pub fn new(notices: Option<mpsc::Sender<Notice>>) -> Self {
        let metrics = Metrics::new();
        Self {
            readiness: Readiness::new(),
            ledger: Ledger::new(metrics.clone(), notices),
            metrics,
        }
    }
}
