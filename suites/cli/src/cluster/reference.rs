//! A cluster that another process has brought up.

use cluster::Cluster;
use existing::{About, KubernetesCluster, Own};
use kind::KindCluster;
use lab::LabCluster;
use serde::{Deserialize, Serialize};

/// How a process finds a cluster that another one has: as JSON in the order of a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ClusterRef {
    /// The lab of this name.
    Lab(String),
    /// The cluster of kind of this name.
    Kind(String),
    /// One by a kubeconfig, as it was found.
    Existing(Box<About>),
}

impl ClusterRef {
    /// The cluster.
    ///
    /// # Errors
    /// It is not there any more.
    pub(crate) async fn attach(self) -> anyhow::Result<Cluster> {
        Ok(match self {
            Self::Lab(name) => LabCluster::attach(&name).await?.cluster().clone(),
            Self::Kind(name) => KindCluster::attach(&name).await?.cluster().clone(),
            Self::Existing(about) => KubernetesCluster::attach(*about, Own::default()).await?.cluster(),
        })
    }

    /// Whether cases that run beside each other share this machine and nothing else.
    pub(crate) fn is_lab(&self) -> bool {
        matches!(self, Self::Lab(_))
    }
}
