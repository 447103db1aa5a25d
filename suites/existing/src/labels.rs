//! Names and labels of the suite's objects, and labels of nodes.

/// Standard label for the manager of an object.
pub(super) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Its value for the suite's objects.
pub(super) const MANAGER: &str = "plumbline";
/// The only container of the run's own pods.
pub(super) const CONTAINER: &str = "probe";
/// The Lease of a run, in its namespace.
pub(super) const LEASE: &str = "plumbline-run";
/// Node label: operating system.
pub(super) const OS: &str = "kubernetes.io/os";
/// Node label: architecture.
pub(super) const ARCHITECTURE: &str = "kubernetes.io/arch";
/// Label of agents' pods, and of their ConfigMaps, that runs have made beside the agents' DaemonSet.
pub(super) const CUSTOM: &str = "plumbline-run/custom-agent";
/// Label of an indexed Job, of its pods and of its own namespace: the name of the Job.
pub(super) const JOB: &str = "plumbline-job";
