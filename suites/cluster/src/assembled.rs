//! A cluster, assembled from its parts.

use std::{fmt, path::Path, sync::Arc};

use kube::Client;
use tokio::process::Child;

use crate::{
    AgentControl, ClusterError, ControlPlaneFaults, Description, NodeAccess, OutsideClient, Parts, Place,
    PodAccess, command_line,
    spawn::{self, Placed},
};

/// A cluster to run cases in: what every cluster has, and the parts that this one has beside it. Cloning it is cheap but for
/// its description, and gives another way to the same cluster.
#[derive(Clone)]
pub struct Cluster {
    description: Description,
    client: Client,
    pods: Arc<dyn PodAccess>,
    parts: Parts,
}

impl Cluster {
    /// One of these parts, which declares what they can ([`Parts::capabilities`]) beside what its description declares of families
    /// and objects.
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

    /// What runs where.
    #[must_use]
    pub fn describe(&self) -> &Description {
        &self.description
    }

    /// Leaves all nodes but one to cases that run beside this one.
    #[must_use]
    pub fn of_one_node(mut self, node: &str) -> Self {
        self.description.keep_to(node);
        self
    }

    /// Administrator's client.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Processes on nodes.
    ///
    /// # Errors
    /// [`ClusterError::Unsupported`]: it has no such part.
    pub fn nodes(&self) -> Result<&dyn NodeAccess, ClusterError> {
        let part = self.parts.nodes.as_deref();
        part.ok_or_else(|| ClusterError::unsupported("run anything on its nodes"))
    }

    /// The agents of the target.
    ///
    /// # Errors
    /// [`ClusterError::Unsupported`]: it has no such part.
    pub fn agents(&self) -> Result<&dyn AgentControl, ClusterError> {
        let part = self.parts.agents.as_deref();
        part.ok_or_else(|| ClusterError::unsupported("show, stop or start its agents"))
    }

    /// The API servers.
    ///
    /// # Errors
    /// [`ClusterError::Unsupported`]: it has no such part.
    pub fn control_plane(&self) -> Result<&dyn ControlPlaneFaults, ClusterError> {
        let part = self.parts.control_plane.as_deref();
        part.ok_or_else(|| ClusterError::unsupported("show its API servers, or make faults of them"))
    }

    /// The client outside.
    ///
    /// # Errors
    /// [`ClusterError::Unsupported`]: it has no such part.
    pub fn outside(&self) -> Result<&dyn OutsideClient, ClusterError> {
        let part = self.parts.outside.as_deref();
        part.ok_or_else(|| ClusterError::unsupported("run anything outside of itself"))
    }

    /// What runs a program in a place.
    ///
    /// `argv[0]` may be the word `probe` or `plumbline`, which stand for those programs wherever they are there.
    ///
    /// # Errors
    /// There is no such place.
    pub async fn command(&self, place: &Place, argv: &[String]) -> Result<Placed, ClusterError> {
        match place {
            Place::Pod { namespace, name } => self.pods.command(namespace, name, argv).await,
            Place::Host { node } => self.nodes()?.command(node, argv).await,
            Place::Outside => self.outside()?.command(argv).await,
        }
    }

    /// Starts a process in a place; stdin, stdout and stderr are pipes, and dropping the value kills it. `argv` is as of
    /// [`Cluster::command`].
    ///
    /// # Errors
    /// There is no such place; the program can't be started there.
    pub async fn exec(&self, place: &Place, argv: &[String]) -> Result<Child, ClusterError> {
        let placed = self.command(place, argv).await?;
        let what = || format!("start `{}` {place}", command_line(argv));
        let child = spawn::piped(placed).await;
        child.map_err(|error| ClusterError::failed(what(), error))
    }

    /// What a pod's server wrote so far: see [`PodAccess::log`].
    ///
    /// # Errors
    /// There is no such pod, or its log can't be read.
    pub async fn log(&self, namespace: &str, pod: &str) -> Result<String, ClusterError> {
        self.pods.log(namespace, pod).await
    }

    /// Whether the cluster itself is still there: see [`PodAccess::intact`].
    ///
    /// # Errors
    /// What is gone.
    pub async fn intact(&self) -> Result<(), ClusterError> {
        self.pods.intact().await
    }

    /// Copies what explains a failure into a folder: of the cluster, and of its agents.
    ///
    /// # Errors
    /// The first thing that could not be kept; the rest is tried all the same.
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

    /// Pods and a client outside, in which nothing can be started.
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
