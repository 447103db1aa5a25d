//! Heals nodes of an existing cluster after killed runs.

use anyhow::{Context as _, bail};
use cluster::{Capability, Cluster, Node};
use existing::{
    Connection, Guard, KubernetesCluster, KubernetesError, Left, Own, give_back, holders, left_on_nodes,
};
use faults::Healed;

use crate::interruption::interruption;

/// `plumbline heal` with a kubeconfig: restores DaemonSets that killed runs have borrowed, lets nodes run their agents
/// again, and undoes what helpers have left there, through pods like those of the run. Nothing else is touched.
///
/// Returns how many things were undone, and whether all is healthy.
///
/// # Errors
/// A run is in progress; or something can't be undone: then the record of the killed run stays for another try.
pub(super) async fn heal(connection: &Connection, namespace: &str) -> anyhow::Result<(usize, bool)> {
    let client = connection.client().await?;
    if let Some(holder) = holders(&client, namespace).await?.first() {
        bail!(
            "{} has the cluster since {} (Lease {}/plumbline-run), and heals its own faults; end it first (one that was killed \
             has it until it has not been heard of for a while: try again)",
            holder.who,
            holder.since,
            holder.namespace
        );
    }
    let left = left_on_nodes(&client, namespace).await?;
    // DaemonSets first: without their agents, nodes serve no Service.
    let mut undone = give_back(&client, None).await?;
    for words in &undone {
        println!("{words}");
    }
    let Some(Left { mut options, .. }) = left else {
        return Ok((undone.len(), true));
    };
    connection.clone_into(&mut options.connection);
    namespace.clone_into(&mut options.namespace);
    options.plumbline = std::env::current_exe().context("failed to find this program")?;
    options.run = format!("heal-{}", std::process::id());
    let interrupted = interruption()?;
    let mut cluster = KubernetesCluster::survey(options, Own::default()).await?;
    let mut guard = Guard::take(&cluster, "plumbline heal", &interrupted).await?;
    let healed = async {
        cluster.look_at_hosts().await?;
        nodes(&cluster.cluster(), None).await
    };
    let healed = tokio::select! {
        healed = healed => healed,
        () = interrupted.cancelled() => Err(KubernetesError::Interrupted.into()),
    };
    let healed = match healed {
        Ok(healed) => healed,
        // The record of the killed run stays.
        Err(error) => {
            guard.leave().await?;
            return Err(error);
        }
    };
    let mut is_whole = true;
    for healed in healed {
        is_whole &= healed.held.is_empty();
        for words in healed.undone.iter().chain(&healed.held) {
            println!("{words}");
        }
        undone.extend(healed.undone);
    }
    for node in guard.beyond() {
        println!(
            "the node {node} can't be reached, and may still have what was left there: try again when it is Ready"
        );
    }
    if is_whole {
        guard.healed();
        is_whole = guard.beyond().is_empty();
    }
    guard.end().await?;
    Ok((undone.len(), is_whole))
}

/// Undoes what is left on the nodes of a cluster that this process holds, or on one of them.
///
/// # Errors
/// The first node that can't be healed; the other nodes are healed all the same.
pub(crate) async fn nodes(cluster: &Cluster, only: Option<&str>) -> anyhow::Result<Vec<Healed>> {
    let description = cluster.describe();
    let mut all = Vec::new();
    let mut first = Ok(());
    if description.capabilities.contains(&Capability::Node) {
        let is_meant = |node: &&Node| only.is_none_or(|only| node.name == only);
        for node in description.nodes.iter().filter(is_meant) {
            match faults::heal(cluster, &node.name).await {
                Ok(healed) => all.push(healed),
                Err(error) => {
                    let failed = Err(error).with_context(|| format!("failed to heal the node {}", node.name));
                    first = first.and(failed);
                }
            }
        }
    }
    first.map(|()| all)
}
