//! Processes of agents on their nodes.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ContainerStatus;
use kube::Client;
use nix::sys::signal::Signal;

use crate::{KubernetesError, Options, node_access};

/// Finds and signals the processes of agents, and reads their readiness.
#[async_trait]
pub trait Processes: Send + Sync {
    /// The first process of a container, by its number on the node; `None` if the container has none. The process gets
    /// a signal if one is named.
    ///
    /// # Errors
    /// The node does not exist, or can't be entered.
    async fn first(
        &self,
        node: &str,
        container: &str,
        signal: Option<Signal>,
    ) -> Result<Option<u32>, KubernetesError>;

    /// Whether an agent is ready: by default, what its kubelet has seen last. `None`: it does not answer.
    async fn is_ready(&self, _node: &str, status: &ContainerStatus) -> Option<bool> {
        Some(status.ready)
    }
}

/// Processes through the run's privileged pods.
pub(super) struct PodProcesses {
    client: Client,
    options: Options,
    /// Container and process of each node's agent: read once for each container.
    known: Mutex<BTreeMap<String, (String, u32)>>,
}

impl PodProcesses {
    pub(super) fn new(client: Client, options: Options) -> Self {
        Self {
            client,
            options,
            known: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, (String, u32)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// [`Client`] has no `Debug`.
impl fmt::Debug for PodProcesses {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("PodProcesses");
        debug.field("known", &self.known).finish_non_exhaustive()
    }
}

#[async_trait]
impl Processes for PodProcesses {
    async fn first(
        &self,
        node: &str,
        container: &str,
        signal: Option<Signal>,
    ) -> Result<Option<u32>, KubernetesError> {
        if signal.is_none()
            && let Some((of, process)) = self.known().get(node)
            && of == container
        {
            return Ok(Some(*process));
        }
        let mut words = vec!["process", "--container", container];
        words.extend(signal.iter().flat_map(|signal| ["--signal", signal.as_str()]));
        let process = node_access::ask(&self.client, &self.options, node, &words).await?;
        if let Some(process) = process {
            self.known()
                .insert(node.to_owned(), (container.to_owned(), process));
        }
        Ok(process)
    }
}
