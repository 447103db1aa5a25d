//! Why a kind cluster could not be made or used. Messages are complete, as those of the lab.

use std::{io, time::Duration};

use cluster::ClusterError;

/// One variant for each cause.
#[derive(Debug, thiserror::Error)]
pub enum KindError {
    /// A program does not exist.
    #[error("there is no {program} on the PATH; {remedy}")]
    NoProgram {
        /// Its name.
        program: &'static str,
        /// How to get it.
        remedy: &'static str,
    },
    /// The Docker daemon does not answer.
    #[error(
        "the Docker daemon does not answer: {why}. Start it (systemctl start docker), or set DOCKER_HOST"
    )]
    NoDaemon {
        /// The docker client's message.
        why: String,
    },
    /// kind is configured for another container runtime.
    #[error(
        "KIND_EXPERIMENTAL_PROVIDER should be docker or not set, and is {found:?}: nodes, and what is beside them, are reached \
         through Docker"
    )]
    Provider {
        /// Its value.
        found: String,
    },
    /// The nodes' processes are on another machine.
    #[error(
        "the node {node} does not run on this host: {why}. Docker must be this host's own, as processes are started in \
         the namespaces of nodes and pods; with Docker in a virtual machine, run this there"
    )]
    Elsewhere {
        /// The node.
        node: String,
        /// What was missing.
        why: String,
    },
    /// A node lacks a file system.
    #[error("the node {node} has no {file_system} file system mounted: {remedy}")]
    NoMount {
        /// The node.
        node: String,
        /// `cgroup2` or `bpf`.
        file_system: &'static str,
        /// The remedy.
        remedy: &'static str,
    },
    /// Entering namespaces needs root.
    #[error(
        "processes are started in the namespaces of nodes and pods, which needs root; start it with sudo"
    )]
    NotRoot,
    /// An invalid cluster name.
    #[error(
        "{found:?} can't be a cluster's name; expected 1 to 32 of a-z, 0-9 and '-', with no '-' at either end"
    )]
    Name {
        /// The invalid value.
        found: String,
    },
    /// Nodes are not Ready, so they have no CNI plugin.
    #[error("these nodes are not Ready within {limit:?}, so pods have no network there: {nodes}")]
    NodesNotReady {
        /// The nodes with their messages.
        nodes: String,
        /// How long was waited.
        limit: Duration,
    },
    /// Another run uses the cluster.
    #[error("the kind cluster {name:?} is in use by another run; wait for its end, or choose another name")]
    Held {
        /// Its name.
        name: String,
    },
    /// The API can't be used.
    #[error(transparent)]
    Kubernetes(#[from] existing::KubernetesError),
    /// The target can't be used.
    #[error(transparent)]
    Undefined(#[from] cluster::target::TargetError),
    /// No cluster has this name.
    #[error(
        "there is no kind cluster {name:?}; `kind get clusters` lists them, and without --reuse one is made"
    )]
    NotUp {
        /// Its name.
        name: String,
    },
    /// Some nodes are stopped, as after a restart of the host.
    #[error(
        "all nodes of the kind cluster {name:?} should run, and some are stopped: `docker start {}` starts them, and `kind delete \
         cluster --name {name}` removes the cluster, which stays as it is until then",
        nodes.join(" ")
    )]
    Stopped {
        /// Its name.
        name: String,
        /// Names of the containers.
        nodes: Vec<String>,
    },
    /// Another process has made a cluster of this name.
    #[error(
        "there is a kind cluster {name:?} already, which stays as it is; `--reuse {name}` uses it, and `kind delete cluster --name \
         {name}` removes it"
    )]
    Taken {
        /// Its name.
        name: String,
    },
    /// No run has made the cluster.
    #[error(
        "no run has made or used a kind cluster {name:?} on this host, so none has left anything in it; expected one that was \
         kept: {}",
        listed(kept)
    )]
    NotKept {
        /// The given name.
        name: String,
        /// Names of the kept clusters.
        kept: Vec<String>,
    },
    /// The run of the cluster was killed, and nothing uses it.
    #[error(
        "the run that made the kind cluster {name:?} was killed, and it is not kept: the next run removes it, as \
         `plumbline cleanup --kind {name}` does"
    )]
    Left {
        /// Its name.
        name: String,
    },
    /// The start of the cluster was interrupted.
    #[error(
        "the kind cluster {name:?} was never brought up whole: a run had failed, or was killed, before it was. \
         Nothing is known to be undone; `plumbline run --provider kind --reuse {name}` brings it up, `kind delete cluster \
         --name {name}` removes it"
    )]
    NotWhole {
        /// Its name.
        name: String,
    },
    /// A program for an image is not static.
    #[error(
        "{program} is not static, and its image is made of nothing else: run the suite by `cargo xtask e2e --provider kind`, \
         or the programs that `cargo xtask dist` builds"
    )]
    NotStatic {
        /// Path of the program.
        program: String,
    },
    /// An image could not be loaded.
    #[error(
        "{place} did not take the image {image}, so nothing of it can run there: {error}. Expected room for it and its archive: \
         `{look}` shows what there is"
    )]
    NotLoaded {
        /// Its name.
        image: String,
        /// Where it was to be loaded.
        place: String,
        /// A command that shows the free space there.
        look: String,
        /// The cause.
        error: Box<Self>,
    },
    /// The target is not deployable on kind.
    #[error("the target {target:?} can't be deployed on kind; expected {expected}")]
    Target {
        /// Its name.
        target: String,
        /// The deployable targets.
        expected: String,
    },
    /// An existing cluster has another kube-proxy than the target needs.
    #[error(
        "the kind cluster {name:?} has {found}, and {expected} is to be tested: make one for it by leaving out --reuse"
    )]
    Foreign {
        /// Its name.
        name: String,
        /// Its kube-proxy.
        found: String,
        /// The target.
        expected: &'static str,
    },
    /// Another controller assigns addresses to load balancers.
    #[error(
        "the kind cluster {name:?} has a load balancer controller: its Service {service} has {addresses}, which no run has \
         given. Expected none, as runs give addresses of their own: end it (cloud-provider-kind, MetalLB …) and delete that \
         Service, or make a cluster by leaving out --reuse"
    )]
    Balanced {
        /// Its name.
        name: String,
        /// A Service with such addresses.
        service: String,
        /// Its addresses.
        addresses: String,
    },
    /// The agents of some nodes are not ready.
    #[error("not all agents are ready within {limit:?}: {why}")]
    NoAgents {
        /// How long was waited.
        limit: Duration,
        /// The nodes, with messages of their pods.
        why: String,
    },
    /// Two API servers need two nodes.
    #[error(
        "the kind cluster {name:?} has {nodes} nodes, and a second API server needs a worker: expected --nodes 2 or more \
         with --apiservers 2"
    )]
    Alone {
        /// Its name.
        name: String,
        /// Number of nodes, existing or configured.
        nodes: usize,
    },
    /// The target needs a newer Kubernetes.
    #[error(
        "{target} needs Kubernetes {needs} or later, and {of} is of {found}: expected --kind-image (or KIND_NODE_IMAGE) of a newer \
         one"
    )]
    TooOld {
        /// Its name.
        target: &'static str,
        /// The first supported minor version.
        needs: &'static str,
        /// The image of nodes, or the cluster.
        of: String,
        /// Its minor version.
        found: String,
    },
    /// The cluster has more control planes than kubeadm's first.
    #[error(
        "the kind cluster {name:?} has the control planes {}, and one is expected: a second API server is made on a worker. Make a \
         cluster by leaving out --reuse",
        nodes.join(", ")
    )]
    ControlPlanes {
        /// Its name.
        name: String,
        /// Their nodes.
        nodes: Vec<String>,
    },
    /// A command failed.
    #[error("failed to {what}: `{command}` {why}")]
    Command {
        /// The operation.
        what: String,
        /// The command.
        command: String,
        /// Exit status and end of its output.
        why: String,
    },
    /// The API server refused a request.
    #[error("failed to {what}: {error}")]
    Api {
        /// The operation.
        what: String,
        /// The API server's error.
        error: Box<kube::Error>,
    },
    /// Something has an unexpected state.
    #[error("failed to {what}: {why}")]
    Unexpected {
        /// The operation.
        what: String,
        /// What was found.
        why: String,
    },
    /// Another system call failed.
    #[error("failed to {what}: {error}")]
    Io {
        /// The operation.
        what: String,
        /// The cause.
        error: io::Error,
    },
}

/// Names or addresses, for messages.
pub(super) fn listed<T: ToString>(all: &[T]) -> String {
    if all.is_empty() {
        return "none".to_owned();
    }
    let all: Vec<String> = all.iter().map(T::to_string).collect();
    all.join(", ")
}

/// For `map_err`: the operation, which completes "failed to …".
pub(super) fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> KindError {
    let what = what.into();
    move |error| KindError::Io { what, error }
}

/// As [`io_error`], for responses of the API server.
pub(super) fn api_error(what: impl Into<String>) -> impl FnOnce(kube::Error) -> KindError {
    let what = what.into();
    move |error| KindError::Api {
        what,
        error: Box::new(error),
    }
}

/// For `map_err`: the operation, as a case names it.
pub(super) fn cluster_error(what: &str) -> impl FnOnce(KindError) -> ClusterError {
    move |error| ClusterError::Failed {
        what: what.to_owned(),
        why: error.to_string(),
    }
}
