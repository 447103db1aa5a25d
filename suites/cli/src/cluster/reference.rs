//! A reference to a cluster that another process has started.

use cluster::Cluster;
use existing::{About, KubernetesCluster, Own};
use kind::KindCluster;
use lab::LabCluster;
use serde::{Deserialize, Serialize};

/// How a process finds the cluster of another process; part of the JSON order of a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ClusterRef {
    /// The lab of this name.
    Lab(String),
    /// The kind cluster of this name.
    Kind(String),
    /// An existing cluster, with its survey.
    Existing(Box<About>),
}

impl ClusterRef {
    /// Connects to the cluster.
    ///
    /// # Errors
    /// The cluster is gone.
    pub(crate) async fn attach(self) -> anyhow::Result<Cluster> {
        Ok(match self {
            Self::Lab(name) => LabCluster::attach(&name).await?.cluster().clone(),
            Self::Kind(name) => KindCluster::attach(&name).await?.cluster().clone(),
            Self::Existing(about) => KubernetesCluster::attach(*about, Own::default()).await?.cluster(),
        })
    }

    /// Whether the cluster is a lab: concurrent cases then share only this machine.
    pub(crate) fn is_lab(&self) -> bool {
        matches!(self, Self::Lab(_))
    }
}
