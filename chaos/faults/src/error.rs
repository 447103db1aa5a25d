//! Errors of faults.

use cluster::ClusterError;

/// Why a fault could not be made or healed.
#[derive(Debug, thiserror::Error)]
pub enum FaultError {
    /// The cluster could not do its part.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The helper on the node has ended, or its answer can't be read.
    #[error("the helper on {node} {what}: {stderr}")]
    Helper {
        /// The node.
        node: String,
        /// What went wrong.
        what: String,
        /// Its stderr.
        stderr: String,
    },
    /// A command failed on the node.
    #[error("the helper on {node} failed to {what}: {why}")]
    Refused {
        /// The node.
        node: String,
        /// The command.
        what: String,
        /// The reason.
        why: String,
    },
}

/// An error's message, for a helper's stderr.
pub(crate) fn message(error: impl std::error::Error) -> String {
    error.to_string()
}
