//! Names and labels by which the suite knows its own objects, and what nodes are labelled with.

/// Who made an object, in its label of that name.
pub(super) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The same.
pub(super) const MANAGER: &str = "plumbline";
/// The only container of the run's own pods.
pub(super) const CONTAINER: &str = "probe";
/// The Lease of a run, in its namespace.
pub(super) const LEASE: &str = "plumbline-run";
/// Label of a node: its operating system.
pub(super) const OS: &str = "kubernetes.io/os";
/// Label of a node: its architecture.
pub(super) const ARCHITECTURE: &str = "kubernetes.io/arch";
