//! The network of pods, for clusters without any other CNI (`--pod-network`).
//!
//! ```text
//! Nodes ─▶ model ─▶ Plan ──────────────┐
//! rtnetlink ─▶ host ─▶ View (MTU) ─────┴▶ worker ─┬▶ routes: another node's podCIDR by its InternalIP (rtnetlink)
//!                                                 ├▶ masquerade: packets of pods to outside of the cluster (nf_tables)
//!                                                 └▶ conflist: ptp, host-local and portmap, last
//! ```
//!
//! | file | what |
//! |---|---|
//! | `plan` | pure: Nodes → routes and ranges, with the reasons of those left out |
//! | `conflist` | the CNI configuration |
//! | `routes` | the kernel's routes of [`PROTOCOL`], and no others |
//! | `masquerade` | one table of nf_tables, by netlink, without nft |
//! | `worker` | plans → the kernel and the file, again and again |
//! | `flags` | the command line |
//!
//! The agent recognises what it has set by marks, not by memory: routes of the main table by the protocol number
//! [`PROTOCOL`], the table by its name, the file by its name and by the name of the network in it. So what an earlier start
//! has set and no Node needs any more is removed, also by an agent without `--pod-network`. Routes of other owners are
//! never touched. Nothing is set or removed before the Nodes have been listed; then everything is as [`plan`] makes it of
//! the Nodes.
//!
//! **Another CNI**: if the folder has a `.conf`, `.conflist` or `.json` file of another owner, nothing is set, and `/readyz`
//! names the file. If the agent's own file exists already, pods have its network: everything goes on, and `/readyz` says
//! which of the two files the runtime takes.
//!
//! **Source addresses** stay between pods, and between pods and nodes (InternalIP) of the cluster. Packets of pods to other
//! destinations have their node's address. ptp's own `ipMasq` would hide pods from the pods of other nodes.
//!
//! **Not done here**: forwarding (`net.ipv4.ip_forward`, `net.ipv6.conf.all.forwarding`), which ptp turns on with each pod,
//! and `/readyz` reports if it is off; NetworkPolicies; routes to nodes that don't share a link with this one, whose
//! podCIDRs are in `/readyz` and tried again.

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
