//! A cluster, assembled from its parts.

use std::{fmt, path::Path, sync::Arc};

use kube::Client;
use tokio::process::Child;

use crate::{
    AgentControl, ClusterError, ControlPlaneFaults, Description, NodeAccess, OutsideClient, Parts, Place,
    PodAccess, command_line,
    spawn::{self, Placed},
};

/// A cluster to run cases in: what every cluster has, and the optional parts of this one. A clone uses the same
/// cluster, and is cheap except for its description.
#[derive(Clone)]
pub struct Cluster {
    description: Description,
    client: Client,
    pods: Arc<dyn PodAccess>,
    parts: Parts,
}

impl Cluster {
    /// Assembles a cluster. Parts declare their capabilities ([`Parts::capabilities`]); the description declares
    /// families and objects.
    #[must_use]
    pub fn new(mut description: Description, client: Client, pods: Arc<dyn PodAccess>, parts: Parts) -> Self {
        description.capabilities.extend(parts.capabilities());
        Self {
            description,
            client,
            pods,
            parts,
        }
    }

    /// Provider, target, nodes and capabilities.
    #[must_use]
    pub fn describe(&self) -> &Description {
        &self.description
    }

    /// Leaves all nodes but one to cases that run at the same time.
    #[must_use]
    pub fn of_one_node(mut self, node: &str) -> Self {
        self.description.keep_to(node);
        self
    }

    /// The administrator's client.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Access to nodes.
    ///
    /// # Errors
    /// [`ClusterError::Unsupported`]: this cluster has no access to its nodes.
    pub fn nodes(&self) -> Result<&dyn NodeAccess, ClusterError> {
        let part = self.parts.nodes.as_deref();
        part.ok_or_else(|| ClusterError::unsupported("run anything on its nodes"))
    }

    /// The agents of the target.
    ///
    /// # Errors
    /// [`ClusterError::Unsupported`]: this cluster has no control of its agents.
    pub fn agents(&self) -> Result<&dyn AgentControl, ClusterError> {
        let part = self.parts.agents.as_deref();
        part.ok_or_else(|| ClusterError::unsupported("show, stop or start its agents"))
    }

    /// The API servers.
    ///
    /// # Errors
    /// [`ClusterError::Unsupported`]: this cluster does not show its API servers.
    pub fn control_plane(&self) -> Result<&dyn ControlPlaneFaults, ClusterError> {
        let part = self.parts.control_plane.as_deref();
        part.ok_or_else(|| ClusterError::unsupported("show its API servers, or make faults of them"))
    }

    /// The client outside the cluster.
    ///
    /// # Errors
    /// [`ClusterError::Unsupported`]: this cluster has no client outside.
    pub fn outside(&self) -> Result<&dyn OutsideClient, ClusterError> {
        let part = self.parts.outside.as_deref();
        part.ok_or_else(|| ClusterError::unsupported("run anything outside of itself"))
    }

    /// Prepares the command that runs a program in a place.
    async fn command(&self, place: &Place, argv: &[String]) -> Result<Placed, ClusterError> {
        match place {
            Place::Pod { namespace, name } => self.pods.command(namespace, name, argv).await,
            Place::Host { node } => self.nodes()?.command(node, argv).await,
            Place::Outside => self.outside()?.command(argv).await,
        }
    }

    /// Starts a process in a place, with pipes for stdin, stdout and stderr. Dropping the value kills it.
    ///
    /// `argv[0]` may be `probe` or `plumbline`, which stand for those programs wherever the place has them.
    ///
    /// # Errors
    /// The place does not exist; the program can't be started there.
    pub async fn exec(&self, place: &Place, argv: &[String]) -> Result<Child, ClusterError> {
        let placed = self.command(place, argv).await?;
        let what = || format!("start `{}` {place}", command_line(argv));
        let child = spawn::piped(placed).await;
        child.map_err(|error| ClusterError::failed(what(), error))
    }

    /// The log of a pod's server so far: see [`PodAccess::log`].
    ///
    /// # Errors
    /// The pod does not exist, or its log can't be read.
    pub async fn log(&self, namespace: &str, pod: &str) -> Result<String, ClusterError> {
        self.pods.log(namespace, pod).await
    }

    /// Whether the cluster still exists: see [`PodAccess::intact`].
    ///
    /// # Errors
    /// Which part of the cluster is gone.
    pub async fn intact(&self) -> Result<(), ClusterError> {
        self.pods.intact().await
    }

    /// Copies evidence of the cluster and of its agents into a folder.
    ///
    /// # Errors
    /// The first item that could not be copied; the rest is copied all the same.
    pub async fn evidence(&self, folder: &Path) -> Result<(), ClusterError> {
        let of_cluster = self.pods.evidence(folder).await;
        match &self.parts.agents {
            Some(agents) => of_cluster.and(agents.evidence(folder).await),
            None => of_cluster,
        }
    }
}

/// [`Client`] has no `Debug`.
impl fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Cluster")
            .field("description", &self.description)
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use async_trait::async_trait;
    use kube::Config;

    use super::*;
    use crate::Capability;

    /// Pods and an outside client that start no process.
    struct Nothing;

    #[async_trait]
    impl PodAccess for Nothing {
        async fn command(&self, _: &str, pod: &str, _: &[String]) -> Result<Placed, ClusterError> {
            Err(ClusterError::not_found("pod", pod))
        }

        async fn log(&self, _: &str, pod: &str) -> Result<String, ClusterError> {
            Err(ClusterError::not_found("pod", pod))
        }

        async fn intact(&self) -> Result<(), ClusterError> {
            Ok(())
        }

        async fn evidence(&self, _: &Path) -> Result<(), ClusterError> {
            Ok(())
        }
    }

    #[async_trait]
    impl OutsideClient for Nothing {
        async fn command(&self, _: &[String]) -> Result<Placed, ClusterError> {
            Err(ClusterError::not_found("client", "outside"))
        }
    }

    fn cluster(parts: Parts) -> Cluster {
        let description = serde_json::json!({
            "provider": "test", "target": "nothing", "kernel": "none", "nodes": [], "capabilities": ["ipv4"],
            "features": [], "deviations": [], "ways": {"service": false, "further": false},
        });
        let description = serde_json::from_value(description).expect("a description");
        let nowhere = Config::new("http://127.0.0.1:1".parse().expect("an address"));
        let client = Client::try_from(nowhere).expect("a client");
        Cluster::new(description, client, Arc::new(Nothing), parts)
    }

    #[tokio::test]
    async fn a_capability_is_that_its_part_is_there() {
        let argv = ["true".to_owned()];
        let bare = cluster(Parts::default());
        assert_eq!(bare.describe().capabilities, BTreeSet::from([Capability::Ipv4]));
        let missing = [
            bare.nodes().map(drop),
            bare.agents().map(drop),
            bare.control_plane().map(drop),
            bare.exec(&Place::Outside, &argv).await.map(drop),
        ];
        for error in missing {
            assert!(
                matches!(error, Err(ClusterError::Unsupported { .. })),
                "{error:?}"
            );
        }

        let seen = cluster(Parts {
            outside: Some(Arc::new(Nothing)),
            ..Parts::default()
        });
        let expected = BTreeSet::from([Capability::Ipv4, Capability::Outside]);
        assert_eq!(seen.describe().capabilities, expected);
        let error = seen
            .exec(&Place::Outside, &argv)
            .await
            .expect_err("nothing starts");
        assert_eq!(error, ClusterError::not_found("client", "outside"));
    }
}
