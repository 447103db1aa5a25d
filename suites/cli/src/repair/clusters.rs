//! Removes what killed runs have left in an existing cluster or in a kind cluster.

use std::{collections::BTreeSet, process::ExitCode};

use anyhow::{Context as _, bail};
use existing::{Connection, holders, left_jobs, left_on_nodes, remove_lease};
use harness::{
    cleanup::{Made, runs_in},
    limits::{Limits, Profile},
    objects::RUN_LABEL,
};
use k8s_openapi::api::core::v1::Namespace;
use kind::{KindCluster, Standing};
use kube::{Api, Client, ResourceExt, api::ListParams};

use super::{names, nodes};
use crate::cluster::NAMESPACE;

/// Removes everything with the label of a run, except objects of the run that holds the cluster now.
///
/// # Errors
/// The API can't be reached, or something can't be removed.
pub(super) async fn cleanup(connection: &Connection, namespace: &str) -> anyhow::Result<ExitCode> {
    let client = connection.client().await?;
    let own = match names(&client).await {
        Err(error) if is_forbidden(&error) => BTreeSet::new(),
        names => names?,
    };
    let (mut removed, mut is_whole) = (0, true);
    // Runs that could not create namespaces.
    let mut confined: BTreeSet<String> = runs_in(&client, namespace).await?.into_iter().collect();
    confined.retain(|run| !own.contains(run));
    // Before anything is removed: a Lease that is not renewed takes a while to expire.
    let held = holders(&client, namespace).await?;
    for holder in &held {
        println!("{} has the cluster since {}, and stays", holder.who, holder.since);
    }
    // Healing reaches nodes through pods that are removed next.
    if held.is_empty() {
        let (undone, is_whole) = nodes::heal(connection, namespace).await.context(
            "nothing is removed, as the nodes are reached through it: expected that what a killed run has left on them can \
             be undone first",
        )?;
        if !is_whole {
            bail!(
                "nothing more is removed, as nodes are reached through it: expected that all that a killed run has left on them is \
                 undone (above); try again when helpers there have ended, and nodes are Ready"
            );
        }
        removed += usize::from(undone > 0);
    }
    let is_held = |run: &String| held.iter().any(|holder| holder.run == *run);
    let own = own.iter().map(|run| (run, None));
    let confined = confined.iter().map(|run| (run, Some(namespace)));
    for (run, confined) in own.chain(confined).filter(|(run, _)| !is_held(run)) {
        // In kind the load balancer controller has ended with its run, so the finalizers of its Services must be
        // removed here.
        let namespaces = namespaces(&client, run, confined).await?;
        if let Some(namespace) = unhealed(&client, &namespaces).await? {
            println!(
                "{run} may have left faults on nodes, which are reached through what it has left: it stays until `plumbline heal \
                 --namespace {namespace}` has undone them"
            );
            is_whole = false;
            continue;
        }
        for namespace in namespaces {
            kind::give_back(&client, Some(&namespace)).await?;
        }
        let made = Made {
            run,
            case: None,
            confined,
        };
        made.cleanup(&client, Limits::of(Profile::Cluster).cleanup)
            .await?;
        println!("what {run} had left is removed");
        removed += 1;
    }
    let is_free = held.iter().all(|holder| holder.namespace != namespace);
    let is_free = is_free && left_on_nodes(&client, namespace).await?.is_none();
    if is_free && remove_lease(&client, namespace).await? {
        println!("the Lease of a run that has ended is removed");
        removed += 1;
    }
    for job in left_jobs(&client, namespace).await? {
        let name = format!("{}/{}", job.namespace, job.name);
        if job.is_under_way {
            // Its sweep may be running on another host.
            println!(
                "the Job {name} is under way, and stays; it ends by itself, or at once by `kubectl delete job --namespace {} {}`, and \
                 then this again",
                job.namespace, job.name
            );
            continue;
        }
        job.remove(&client).await?;
        println!("what the Job {name} had left is removed");
        removed += 1;
    }
    if removed == 0 && is_whole {
        println!("nothing else is left");
    }
    Ok(ExitCode::from(u8::from(!is_whole)))
}

/// The first namespace whose Lease records that nodes may not be healed.
async fn unhealed<'a>(client: &Client, namespaces: &'a [String]) -> anyhow::Result<Option<&'a str>> {
    for namespace in namespaces {
        if left_on_nodes(client, namespace).await?.is_some() {
            return Ok(Some(namespace));
        }
    }
    Ok(None)
}

/// Removes a kind cluster whose run is dead. Of a kept cluster, only what killed runs have left is removed.
///
/// # Errors
/// Something can't be removed, or the API does not answer.
pub(super) async fn cleanup_kind(name: &str) -> anyhow::Result<ExitCode> {
    match kind::remove_if_dead(name).await? {
        Standing::Unused => {
            println!("no run has left a kind cluster {name} on this host; nothing is removed");
        }
        Standing::Dead => println!("the run of the kind cluster {name} was dead; it is removed"),
        Standing::Held => println!("a run is under way in the kind cluster {name}, which stays"),
        Standing::Kept => {
            let Some(cluster) = KindCluster::attach_alone(name).await? else {
                println!("a run is under way in the kind cluster {name}, which stays");
                return Ok(ExitCode::SUCCESS);
            };
            println!(
                "the kind cluster {name} was kept, and stays: `kind delete cluster --name {name}` and then this again remove it"
            );
            let connection = Connection {
                kubeconfig: Some(cluster.kubeconfig()),
                context: None,
            };
            return cleanup(&connection, NAMESPACE).await.with_context(|| {
                format!("not all was removed in it; `plumbline heal --kind {name}` starts API servers that are down")
            });
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The namespaces in which a run has made Services.
pub(super) async fn namespaces(
    client: &Client,
    run: &str,
    confined: Option<&str>,
) -> anyhow::Result<Vec<String>> {
    if let Some(namespace) = confined {
        return Ok(vec![namespace.to_owned()]);
    }
    let own = ListParams::default().labels(&format!("{RUN_LABEL}={run}"));
    let all: Api<Namespace> = Api::all(client.clone());
    let list = all
        .list(&own)
        .await
        .context("failed to list namespaces of runs")?;
    Ok(list.items.iter().map(ResourceExt::name_any).collect())
}

pub(super) fn is_forbidden(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.is_forbidden())
}
