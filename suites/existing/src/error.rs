//! Errors of clusters by a kubeconfig.

use std::{fmt, path::PathBuf, time::Duration};

use kube::core::ObjectList;

/// Why a cluster can't be used: what was expected, what was found, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum KubernetesError {
    /// No kubeconfig exists, or it can't be read, or it lacks the context.
    #[error(
        "failed to use the kubeconfig {files}: {why}; name another by --kubeconfig FILE or KUBECONFIG, or one of its \
         contexts by --context NAME"
    )]
    Kubeconfig {
        /// Its path; all paths, if several files are merged.
        files: String,
        /// The cause.
        why: String,
    },
    /// The API server does not answer.
    #[error(
        "failed to reach the API server at {server}: {why}; expected a cluster that answers: check the address in the \
         kubeconfig, and the network to it"
    )]
    Unreachable {
        /// Address of the API server.
        server: String,
        /// The cause.
        why: String,
    },
    /// The API server rejects the account.
    #[error(
        "the API server at {server} does not accept the account of the kubeconfig: {why}; expected credentials that are \
         valid: renew them, or choose another --context"
    )]
    Unauthenticated {
        /// Address of the API server.
        server: String,
        /// Its response.
        why: String,
    },
    /// The account lacks permissions that every run needs.
    #[error(
        "the account of the kubeconfig may not {}; `plumbline rbac --tier {tier}` prints what it needs",
        missing.join(", ")
    )]
    Rights {
        /// The requested tier.
        tier: &'static str,
        /// Missing permissions: `create services` …
        missing: Vec<String>,
    },
    /// No node accepts pods.
    #[error("the cluster has no node that pods can be put on: {why}")]
    NoNodes {
        /// The reasons, for each node.
        why: String,
    },
    /// The target is not installed.
    #[error(
        "the node {node} has no agent of the target: expected a pod {selector} in the namespace {namespace} with a container \
         {container}; choose the --target that is installed, or none"
    )]
    NoAgent {
        /// A node without an agent.
        node: String,
        /// The namespace.
        namespace: String,
        /// The label selector.
        selector: String,
        /// The container.
        container: String,
    },
    /// The DaemonSet of the agents does not exist.
    #[error(
        "there is no DaemonSet {namespace}/{name}, by which --tier node stops and starts the target's agents; correct \
         `cluster.agent` in the target's file, or run without --tier node"
    )]
    NoDaemonSet {
        /// Its namespace.
        namespace: String,
        /// Its name in the target file.
        name: String,
    },
    /// Another run holds the cluster.
    #[error(
        "the cluster is under test by {who}, since {since} (Lease {namespace}/plumbline-run); wait for its end, or end it \
         (`plumbline cleanup --namespace {namespace}` removes what killed runs have left)"
    )]
    UnderTest {
        /// The run, its user and host.
        who: String,
        /// Start time.
        since: String,
        /// Namespace of its Lease.
        namespace: String,
    },
    /// The namespace exists, and is not the suite's.
    #[error(
        "the namespace {namespace:?} is there already, and not plumbline's (no label app.kubernetes.io/managed-by: \
         plumbline); choose an unused name by --namespace"
    )]
    Foreign {
        /// Its name.
        namespace: String,
    },
    /// A Lease with the suite's name exists, and is not the suite's.
    #[error(
        "the Lease {lease} is there already, and not plumbline's (no label plumbline-run); choose another --namespace"
    )]
    ForeignLease {
        /// Namespace and name.
        lease: String,
    },
    /// The namespace of an earlier run is being deleted.
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
        /// The node.
        node: String,
        /// The kubelet's message.
        why: String,
    },
    /// The image pull Secret does not exist.
    #[error(
        "there is no Secret {secret:?} in the namespace {namespace:?}, by which nodes would pull the image \
         (--image-pull-secret); the suite makes none: make it there, or, where the run makes its namespaces itself, let a policy \
         of the cluster copy it into each that has the label plumbline-run"
    )]
    NoPullSecret {
        /// Its name.
        secret: String,
        /// Its namespace.
        namespace: String,
    },
    /// Privileged pods are not admitted.
    #[error(
        "the cluster admits no privileged pod on the node {node}: {why}; expected the namespace {namespace} to admit it: it \
         has the label pod-security.kubernetes.io/enforce=privileged, other policies of the cluster must except it; or \
         choose --tier api"
    )]
    NotAdmitted {
        /// Namespace of the run.
        namespace: String,
        /// The node.
        node: String,
        /// The API server's message.
        why: String,
    },
    /// The account may not make a Job, or its namespace.
    #[error(
        "failed to {what}: {why}; expected an account that may create and delete a namespace, or --namespace NAME for one that is \
         there, and in it: create, get, delete jobs; list, delete pods; get pods/log; list events"
    )]
    MayNotPlay {
        /// The operation.
        what: String,
        /// The API server's message.
        why: String,
    },
    /// A Job gets no pods.
    #[error(
        "the Job {job} gets no pods: {why}; expected that the namespace {namespace} admits privileged pods: it has the label \
         pod-security.kubernetes.io/enforce=privileged, and other policies and quotas of the cluster must let them pass; or leave \
         --namespace out, for a namespace that has the label"
    )]
    NoPods {
        /// Namespace and name of the Job.
        job: String,
        /// Its namespace.
        namespace: String,
        /// What the Job controller says.
        why: String,
    },
    /// No node takes a pod of a Job.
    #[error(
        "no pod of the Job {job} has started within {limit:?}: {why}; expected a node of the image's architecture (--image-arch) \
         with half a processor and 512 MiB left"
    )]
    NoRoom {
        /// Namespace and name of the Job.
        job: String,
        /// How long it was waited for.
        limit: Duration,
        /// What the scheduler or the kubelet says.
        why: String,
    },
    /// The run's pod has no access to its node.
    #[error(
        "the node {node} can't be used through the run's pod on it: {why}; choose --tier api to leave nodes alone"
    )]
    Host {
        /// The node.
        node: String,
        /// The cause.
        why: String,
    },
    /// The cgroup paths of two nodes differ, but cases use one path for all.
    #[error(
        "the node {node} has its cgroup v2 hierarchy at {}, and another at {}; expected one path on all of them",
        found.display(), expected.display()
    )]
    Hosts {
        /// A node that differs.
        node: String,
        /// Its path.
        found: PathBuf,
        /// The path on other nodes.
        expected: PathBuf,
    },
    /// Faults of a killed run on nodes are not healed.
    #[error(
        "{run}, which was killed, may have left faults on nodes; `plumbline heal --namespace {namespace}` with the same \
         kubeconfig undoes them, or use --tier node, which does so first"
    )]
    Unhealed {
        /// Name of the run.
        run: String,
        /// Namespace of its Lease.
        namespace: String,
    },
    /// The note of a killed run can't be read.
    #[error(
        "{run}, which was killed, may have left faults on nodes, and what its Lease {namespace}/plumbline-run says of them \
         can't be read: {why}; expected the note of this version of plumbline: `plumbline heal` of the version that wrote it \
         undoes them"
    )]
    UnknownNote {
        /// Name of the run.
        run: String,
        /// Namespace of its Lease.
        namespace: String,
        /// What is wrong with the note.
        why: String,
    },
    /// The run was interrupted before it held the cluster.
    #[error("the run was interrupted before it had the cluster")]
    Interrupted,
    /// The account may not do this.
    #[error("failed to {what}: {why}")]
    Refused {
        /// The operation.
        what: String,
        /// The API server's message.
        why: String,
    },
    /// A request failed.
    #[error("failed to {what}: {why}")]
    Api {
        /// The operation.
        what: String,
        /// The cause.
        why: String,
    },
    /// A request was not answered.
    #[error("failed to {what}: no answer within {limit:?}")]
    Late {
        /// The operation.
        what: String,
        /// Its limit.
        limit: Duration,
    },
}

/// Text of an error, without the repetitions of its sources.
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

/// For `map_err`: the operation, which completes "failed to …".
pub(super) fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> KubernetesError {
    let what = what.into();
    move |error| KubernetesError::Api {
        what,
        why: words(&error),
    }
}

/// The listed objects: none, where the account may not list them or the API server does not know them.
pub(super) fn if_any<T: Clone>(listed: kube::Result<ObjectList<T>>) -> kube::Result<Vec<T>> {
    match listed {
        Err(kube::Error::Api(status)) if status.is_forbidden() || status.is_not_found() => Ok(Vec::new()),
        listed => listed.map(|list| list.items),
    }
}

/// Wraps a value without `Debug`.
pub(super) struct Hidden<T>(pub(super) T);

impl<T> fmt::Debug for Hidden<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(std::any::type_name::<T>())
    }
}
