//! What every part of the agent reports to.

use tokio::sync::mpsc;

use crate::{
    board::Board,
    ledger::{Ledger, Notice},
    metrics::Metrics,
};

/// Where parts say what they see. Clones are the same.
#[derive(Clone, Debug)]
pub struct Reports {
    /// Why this node can't be relied on.
    pub board: Board,
    /// What of the objects can't be used.
    pub ledger: Ledger,
    /// What is counted.
    pub metrics: Metrics,
}

impl Reports {
    /// Nothing reported yet. New findings go to `notices`.
    pub fn new(notices: Option<mpsc::Sender<Notice>>) -> Self {
        let metrics = Metrics::new();
        Self {
            board: Board::new(),
            ledger: Ledger::new(metrics.clone(), notices),
            metrics,
        }
    }
}
