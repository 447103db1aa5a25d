//! Why a kind cluster could not be had. Messages are whole, as those of the embedded lab.

use std::{io, time::Duration};

use cluster::ClusterError;

/// One cause each.
#[derive(Debug, thiserror::Error)]
pub enum KindError {
    /// A program is not there.
    #[error("there is no {program} on the PATH; {remedy}")]
    NoProgram {
        /// Its name.
        program: &'static str,
        /// How to get it.
        remedy: &'static str,
    },
    /// Docker is there, and nobody answers.
    #[error(
        "the Docker daemon does not answer: {why}. Start it (systemctl start docker), or set DOCKER_HOST"
    )]
    NoDaemon {
        /// What the client said.
        why: String,
    },
    /// Kind is told to make nodes of other containers.
    #[error(
        "KIND_EXPERIMENTAL_PROVIDER should be docker or not set, and is {found:?}: nodes, and what is beside them, are reached \
         through Docker"
    )]
    Provider {
        /// Its value.
        found: String,
    },
    /// Nodes are another machine's processes.
    #[error(
        "the node {node} does not run on this host: {why}. Docker must be this host's own, as processes are started in \
         the namespaces of nodes and pods; with Docker in a virtual machine, run this there"
    )]
    Elsewhere {
        /// The node.
        node: String,
        /// What was looked for.
        why: String,
    },
    /// A node lacks a file system.
    #[error("the node {node} has no {file_system} file system mounted: {remedy}")]
    NoMount {
        /// The node.
        node: String,
        /// `cgroup2` or `bpf`.
        file_system: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// Only root enters namespaces.
    #[error(
        "processes are started in the namespaces of nodes and pods, which needs root; start it with sudo"
    )]
    NotRoot,
    /// Not the name of a cluster.
    #[error(
        "{found:?} can't be a cluster's name; expected 1 to 32 of a-z, 0-9 and '-', with no '-' at either end"
    )]
    Name {
        /// What was given.
        found: String,
    },
    /// Nodes have no network of pods.
    #[error("these nodes are not Ready within {limit:?}, so pods have no network there: {nodes}")]
    NodesNotReady {
        /// Each with what it says of itself.
        nodes: String,
        /// How long was waited.
        limit: Duration,
    },
    /// Somebody uses it.
    #[error("the kind cluster {name:?} is in use by another run; wait for its end, or choose another name")]
    Held {
        /// Its name.
        name: String,
    },
    /// Its API can't be used.
    #[error(transparent)]
    Kubernetes(#[from] existing::KubernetesError),
    /// The target can't be had.
    #[error(transparent)]
    Undefined(#[from] cluster::target::TargetError),
    /// No cluster of this name.
    #[error(
        "there is no kind cluster {name:?}; `kind get clusters` lists them, and without --reuse one is made"
    )]
    NotUp {
        /// Its name.
        name: String,
    },
    /// Not all of its nodes run, as after its host has started again.
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
    /// Somebody has made one of this name.
    #[error(
        "there is a kind cluster {name:?} already, which stays as it is; `--reuse {name}` uses it, and `kind delete cluster --name \
         {name}` removes it"
    )]
    Taken {
        /// Its name.
        name: String,
    },
    /// Of no run.
    #[error(
        "no run has made or used a kind cluster {name:?} on this host, so none has left anything in it; expected one that was \
         kept: {}",
        listed(kept)
    )]
    Nobodys {
        /// What was given.
        name: String,
        /// Those that were kept.
        kept: Vec<String>,
    },
    /// Its run was killed, and it is for nobody.
    #[error(
        "the run that made the kind cluster {name:?} was killed, and nobody keeps it: the next run removes it, as \
         `plumbline cleanup --kind {name}` does"
    )]
    Left {
        /// Its name.
        name: String,
    },
    /// Nobody has brought it up whole.
    #[error(
        "the kind cluster {name:?} was never brought up whole: a run had failed, or was killed, before it was. \
         Nothing is known to be undone; `plumbline run --provider kind --reuse {name}` brings it up, `kind delete cluster \
         --name {name}` removes it"
    )]
    NotWhole {
        /// Its name.
        name: String,
    },
    /// A program that goes into an image has to bring everything along.
    #[error(
        "{program} is not static, and its image is made of nothing else: run the suite by `cargo xtask e2e --provider kind`, \
         or the programs that `cargo xtask dist` builds"
    )]
    NotStatic {
        /// Path of the program.
        program: String,
    },
    /// Images could not be put where they are to run.
    #[error(
        "{place} did not take the image {image}, so nothing of it can run there: {error}. Expected room for it and its archive: \
         `{look}` shows what there is"
    )]
    NotLoaded {
        /// Its name.
        image: String,
        /// Where it was to go.
        place: String,
        /// The command that shows the space there.
        look: String,
        /// What came of it.
        error: Box<Self>,
    },
    /// A target that is not deployed on kind.
    #[error("the target {target:?} can't be deployed on kind; expected {expected}")]
    Target {
        /// Its name.
        target: String,
        /// Those that can.
        expected: String,
    },
    /// Somebody else made it, for something else.
    #[error(
        "the kind cluster {name:?} has {found}, and {expected} is to be tested: make one for it by leaving out --reuse"
    )]
    Foreign {
        /// Its name.
        name: String,
        /// Its kube-proxy.
        found: String,
        /// What is under test.
        expected: &'static str,
    },
    /// Somebody else gives addresses to load balancers.
    #[error(
        "the kind cluster {name:?} has a load balancer controller: its Service {service} has {addresses}, which no run has \
         given. Expected none, as runs give addresses of their own: end it (cloud-provider-kind, MetalLB …) and delete that \
         Service, or make a cluster by leaving out --reuse"
    )]
    Balanced {
        /// Its name.
        name: String,
        /// A Service of it.
        service: String,
        /// What that has.
        addresses: String,
    },
    /// The agents of some nodes do not run.
    #[error("the agents of {nodes} are not ready within {limit:?}: {why}")]
    NoAgents {
        /// Names of the nodes.
        nodes: String,
        /// How long was waited.
        limit: Duration,
        /// What the pods say.
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
        /// How many it has, or was to have.
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
        /// The first minor version.
        needs: &'static str,
        /// The image of nodes, or the cluster.
        of: String,
        /// Its minor version.
        found: String,
    },
    /// It has more control planes than kubeadm's first.
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
        /// What it was for.
        what: String,
        /// The command.
        command: String,
        /// How it ended, and the end of what it said.
        why: String,
    },
    /// The API server did not take something.
    #[error("failed to {what}: {error}")]
    Api {
        /// What was tried.
        what: String,
        /// Its answer.
        error: Box<kube::Error>,
    },
    /// Something that was read is not what it should be.
    #[error("failed to {what}: {why}")]
    Unexpected {
        /// What was tried.
        what: String,
        /// What was found.
        why: String,
    },
    /// Any other call failed.
    #[error("failed to {what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// What came of it.
        error: io::Error,
    },
}

/// Names or addresses, for people.
pub(super) fn listed<T: ToString>(all: &[T]) -> String {
    if all.is_empty() {
        return "none".to_owned();
    }
    let all: Vec<String> = all.iter().map(T::to_string).collect();
    all.join(", ")
}

/// For `map_err`: what was tried, as the fragment that completes "failed to …".
pub(super) fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> KindError {
    let what = what.into();
    move |error| KindError::Io { what, error }
}

/// The same for what the API server answers.
pub(super) fn api_error(what: impl Into<String>) -> impl FnOnce(kube::Error) -> KindError {
    let what = what.into();
    move |error| KindError::Api {
        what,
        error: Box::new(error),
    }
}

/// For `map_err`: what was tried, as a case sees it.
pub(super) fn told(what: &str) -> impl FnOnce(KindError) -> ClusterError {
    move |error| ClusterError::Failed {
        what: what.to_owned(),
        why: error.to_string(),
    }
}
