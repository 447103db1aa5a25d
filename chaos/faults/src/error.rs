//! Why a fault could not be made or healed.

use cluster::ClusterError;

/// Why a fault could not be made or healed.
#[derive(Debug, thiserror::Error)]
pub enum FaultError {
    /// The cluster could not do its part.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The helper on the node has ended or speaks nonsense.
    #[error("the helper on {node} {what}: {stderr}")]
    Helper {
        /// The node.
        node: String,
        /// What is wrong with it.
        what: String,
        /// What it said.
        stderr: String,
    },
    /// The helper could not do what it was told.
    #[error("the helper on {node} failed to {what}: {why}")]
    Refused {
        /// The node.
        node: String,
        /// What it was told.
        what: String,
        /// What came of it.
        why: String,
    },
}
