//! The network of pods, for clusters without any other CNI (`--pod-network`).
//!
//! ```text
//! Nodes ─▶ model ─▶ Plan ──────────────┐
//! rtnetlink ─▶ host ─▶ View (MTU) ─────┴▶ worker ─┬▶ routes: another node's podCIDR by its InternalIP (rtnetlink)
//!                                                 ├▶ masquerade: what pods send out of the cluster (nf_tables)
//!                                                 └▶ conflist: ptp, host-local and portmap, last
//! ```
//!
//! | file | what |
//! |---|---|
//! | `plan` | pure: Nodes → routes, ranges, and what of them can't be used |
//! | `conflist` | the file by which the container runtime wires pods |
//! | `routes` | the kernel's routes of [`PROTOCOL`], and no others |
//! | `masquerade` | one table of nf_tables, by netlink: no program of the node is needed |
//! | `worker` | plans → the kernel and the file, again and again |
//! | `flags` | the command line |
//!
//! What the agent sets is recognised by what it carries, not by what the agent remembers: routes of the main table by the
//! protocol number [`PROTOCOL`], the table by its name, the file by its own and by the name of the network in it. So
//! what an earlier start has set and no Node asks for any more goes, also if the agent runs without `--pod-network`.
//! Routes of others are never touched. Nothing is set or removed before the Nodes have been listed; then what is there is
//! what [`plan`] makes of the Nodes, whatever happened before.
//!
//! **Another CNI** (a `.conf`, `.conflist` or `.json` file of somebody else in the folder): then nothing is set, and
//! `/readyz` names the file. Where the agent's own file is there already, pods have its network: all goes on, and
//! `/readyz` says which of the two files the runtime takes.
//!
//! **Sources** stay between pods, and between pods and nodes (InternalIP) of the cluster; what pods send elsewhere
//! comes from their node's address. ptp's own `ipMasq` would hide pods from the pods of other nodes.
//!
//! **Left to others**: forwarding (`net.ipv4.ip_forward`, `net.ipv6.conf.all.forwarding`) is turned on by ptp with each
//! pod, and `/readyz` says if it is off; NetworkPolicies; nodes that don't share a link with this one, whose podCIDRs are
//! named by `/readyz` and tried again.

mod conflist;
mod flags;
mod masquerade;
mod plan;
mod routes;
mod worker;

use std::sync::Arc;

use futures::{FutureExt as _, future::BoxFuture};
use tokio::sync::watch;

pub use self::{
    conflist::Conflist,
    flags::{CniFolder, PodNetworkFlags, RemoveError, RemoveErrors, remove},
    masquerade::Masquerade,
    plan::{Hop, Plan, plan},
    routes::{PROTOCOL, RoutesError},
    worker::{AUDIT, Worker},
};
use crate::{host::HostWatch, reports::Reports};

/// The sending end of plans.
pub type Plans = watch::Sender<Option<Arc<Plan>>>;

/// A worker that keeps the pods' network as planned, and the sender of its plans. Without `--pod-network` it removes
/// what an earlier start has set.
pub fn worker(
    flags: &PodNetworkFlags,
    host: &HostWatch,
    reports: &Reports,
) -> (BoxFuture<'static, ()>, Option<Plans>) {
    let folder = &flags.folder.cni_conf_dir;
    if !flags.pod_network {
        return (
            worker::clear(host.node.clone(), folder.clone(), reports.clone()).boxed(),
            None,
        );
    }
    let (plans, planned) = watch::channel(None);
    let worker = Worker::new(folder, host, planned, reports.clone());
    (worker.run().boxed(), Some(plans))
}

/// Name of the network, of the table, and of the file.
const NAME: &str = "plumbline";
