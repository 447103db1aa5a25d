//! What can be wrong with a cluster by a kubeconfig.

use std::{fmt, path::PathBuf, time::Duration};

/// Why a cluster can't be used: what was expected, what was found, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum KubernetesError {
    /// There is no kubeconfig, or it can't be read, or it lacks the context.
    #[error(
        "failed to use the kubeconfig {files}: {why}; name another by --kubeconfig FILE or KUBECONFIG, or one of its \
         contexts by --context NAME"
    )]
    Kubeconfig {
        /// Its path; of several files that are one together, all paths.
        files: String,
        /// What was found.
        why: String,
    },
    /// Nobody answers.
    #[error(
        "failed to reach the API server at {server}: {why}; expected a cluster that answers: check the address in the \
         kubeconfig, and the network to it"
    )]
    Unreachable {
        /// Its address.
        server: String,
        /// What came of it.
        why: String,
    },
    /// It does not know the account.
    #[error(
        "the API server at {server} does not accept the account of the kubeconfig: {why}; expected credentials that are \
         valid: renew them, or choose another --context"
    )]
    Unauthenticated {
        /// Its address.
        server: String,
        /// What it said.
        why: String,
    },
    /// The account may not do what every run needs.
    #[error(
        "the account of the kubeconfig may not {}; `plumbline rbac --tier {tier}` prints what it needs",
        missing.join(", ")
    )]
    Rights {
        /// The tier that was asked for.
        tier: &'static str,
        /// `create services` …
        missing: Vec<String>,
    },
    /// There is nothing to run pods on.
    #[error("the cluster has no node that pods can be put on: {why}")]
    NoNodes {
        /// What was found, node by node.
        why: String,
    },
    /// The target is not what is installed.
    #[error(
        "the node {node} has no agent of the target: expected a pod {selector} in the namespace {namespace} with a container \
         {container}; choose the --target that is installed, or none"
    )]
    NoAgent {
        /// A node without.
        node: String,
        /// Where it was looked for.
        namespace: String,
        /// By which labels.
        selector: String,
        /// And which container.
        container: String,
    },
    /// What is to be stopped and started is not there.
    #[error(
        "there is no DaemonSet {namespace}/{name}, by which --tier node stops and starts the target's agents; correct \
         `cluster.agent` in the target's file, or run without --tier node"
    )]
    NoDaemonSet {
        /// Where it was looked for.
        namespace: String,
        /// As the target's file calls it.
        name: String,
    },
    /// Another run has it.
    #[error(
        "the cluster is under test by {who}, since {since} (Lease {namespace}/plumbline-run); wait for its end, or end it \
         (`plumbline cleanup --namespace {namespace}` removes what killed runs have left)"
    )]
    UnderTest {
        /// The run, its user and host.
        who: String,
        /// Since when.
        since: String,
        /// Namespace of its Lease.
        namespace: String,
    },
    /// The namespace is there, and the suite has not made it.
    #[error(
        "the namespace {namespace:?} is there already, and not plumbline's (no label app.kubernetes.io/managed-by: \
         plumbline); choose a name that nobody has by --namespace"
    )]
    Foreign {
        /// Its name.
        namespace: String,
    },
    /// A Lease of the name that runs use is there, and the suite has not made it.
    #[error(
        "the Lease {lease} is there already, and not plumbline's (no label plumbline-run); choose another --namespace"
    )]
    ForeignLease {
        /// Namespace and name.
        lease: String,
    },
    /// The namespace of an earlier run is being removed.
    #[error(
        "the namespace {namespace:?} of an earlier run is still being removed; try again when it is gone"
    )]
    Ending {
        /// Its name.
        namespace: String,
    },
    /// The image can't be started.
    #[error(
        "the image {image} can't be started on the node {node}: {why}; expected an image that the node has or can pull, \
         for its architecture: say --image"
    )]
    Image {
        /// Its name.
        image: String,
        /// Where.
        node: String,
        /// What the kubelet said.
        why: String,
    },
    /// Nodes would pull the image by a Secret that is not there.
    #[error(
        "there is no Secret {secret:?} in the namespace {namespace:?}, by which nodes would pull the image \
         (--image-pull-secret); the suite makes none: make it there, or, where the run makes its namespaces itself, let a policy \
         of the cluster copy it into each that has the label plumbline-run"
    )]
    NoPullSecret {
        /// Its name.
        secret: String,
        /// Where it was looked for.
        namespace: String,
    },
    /// The cluster has no place for privileged pods.
    #[error(
        "the cluster admits no privileged pod on the node {node}: {why}; expected the namespace {namespace} to admit it: it \
         has the label pod-security.kubernetes.io/enforce=privileged, other policies of the cluster must except it; or \
         choose --tier api"
    )]
    NotAdmitted {
        /// The run's.
        namespace: String,
        /// Where.
        node: String,
        /// What the API server said.
        why: String,
    },
    /// A node can't be used through the run's pod on it.
    #[error(
        "the node {node} can't be used through the run's pod on it: {why}; choose --tier api to leave nodes alone"
    )]
    Host {
        /// Which.
        node: String,
        /// What was said there.
        why: String,
    },
    /// Cases have one path for all nodes.
    #[error(
        "the node {node} has its cgroup v2 hierarchy at {}, and another at {}; expected one path on all of them",
        found.display(), expected.display()
    )]
    Hosts {
        /// One that differs.
        node: String,
        /// Where it is there.
        found: PathBuf,
        /// Where it is on another.
        expected: PathBuf,
    },
    /// What a killed run has left on nodes is not undone.
    #[error(
        "{run}, which was killed, may have left faults on nodes; `plumbline heal --namespace {namespace}` with the same \
         kubeconfig undoes them, or use --tier node, which does so first"
    )]
    Unhealed {
        /// Its name.
        run: String,
        /// That of its Lease.
        namespace: String,
    },
    /// What a killed run has left is not known.
    #[error(
        "{run}, which was killed, may have left faults on nodes, and what its Lease {namespace}/plumbline-run says of them \
         can't be read: {why}; expected the note of this version of plumbline: `plumbline heal` of the version that wrote it \
         undoes them"
    )]
    UnknownNote {
        /// Its name.
        run: String,
        /// That of its Lease.
        namespace: String,
        /// What is wrong with it.
        why: String,
    },
    /// The run was interrupted before it had the cluster.
    #[error("the run was interrupted before it had the cluster")]
    Interrupted,
    /// It may not be done.
    #[error("failed to {what}: {why}")]
    Refused {
        /// What was asked.
        what: String,
        /// What the API server said.
        why: String,
    },
    /// A question failed.
    #[error("failed to {what}: {why}")]
    Api {
        /// What was asked.
        what: String,
        /// What came of it.
        why: String,
    },
    /// A question was not answered.
    #[error("failed to {what}: no answer within {limit:?}")]
    Late {
        /// What was asked.
        what: String,
        /// How long it was waited for.
        limit: Duration,
    },
}

/// What came of a request, without the repetitions of its sources.
pub(super) fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => {
            let mut text = other.to_string();
            let mut source = std::error::Error::source(other);
            while let Some(cause) = source {
                let cause_text = cause.to_string();
                if !text.contains(&cause_text) {
                    text += ": ";
                    text += &cause_text;
                }
                source = cause.source();
            }
            text
        }
    }
}

/// A question that failed, as an error.
pub(super) fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> KubernetesError {
    let what = what.into();
    move |error| KubernetesError::Api {
        what,
        why: words(&error),
    }
}

/// Something without `Debug`, in something with it.
pub(super) struct Hidden<T>(pub(super) T);

impl<T> fmt::Debug for Hidden<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(std::any::type_name::<T>())
    }
}
