//! `--dry-run`: what `plumbline cleanup` and `plumbline heal` would do. Nothing is changed, and nothing is waited for.

use std::{collections::BTreeSet, process::ExitCode};

use anyhow::{Context as _, bail};
use cluster::{Capability, Cluster, RUN_LABEL};
use existing::{Connection, holders, left_jobs, left_on_nodes};
use harness::cleanup::runs_in;
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Node};
use kind::{KindCluster, Standing};
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use lab::Downed;

use super::{
    Where, attach,
    clusters::{is_forbidden, namespaces},
    names, runs,
};

/// What `plumbline cleanup` would remove.
///
/// # Errors
/// Something can't be read.
pub(super) async fn cleanup(arguments: Where) -> anyhow::Result<ExitCode> {
    let mut would = Vec::new();
    if let Some((connection, namespace)) = arguments.existing() {
        would.extend(left_in(&connection.client().await?, &namespace).await?);
        return Ok(shown(&would));
    }
    let Where { labs, kind, .. } = arguments;
    if let Some(name) = kind {
        would.extend(of_kind(&name).await?);
        return Ok(shown(&would));
    }
    if labs.lab.is_none() {
        for name in kind::dead().await? {
            would.push(format!("remove the kind cluster {name}, whose run is dead"));
        }
    }
    for name in labs.names()? {
        match lab::standing(&name)? {
            Downed::Leftovers => would.push(format!("remove what the lab {name} has left, which is dead")),
            Downed::Nothing => {}
            Downed::Up => {
                let Some(lab) = attach(&name).await else {
                    println!("the lab {name} begins or ends at the moment: try again");
                    continue;
                };
                for run in runs(&lab.cluster().client()).await?.dead {
                    would.push(format!("remove the namespaces of {run} in the lab {name}"));
                }
            }
        }
    }
    Ok(shown(&would))
}

async fn of_kind(name: &str) -> anyhow::Result<Vec<String>> {
    Ok(match kind::standing(name).await? {
        Standing::Unused => Vec::new(),
        Standing::Held => {
            println!("a run is under way in the kind cluster {name}, which stays");
            Vec::new()
        }
        Standing::Dead => vec![format!("remove the kind cluster {name}, whose run is dead")],
        Standing::Kept => {
            let cluster = KindCluster::attach(name).await?;
            left_in(&cluster.cluster().client(), crate::cluster::NAMESPACE).await?
        }
    })
}

/// What runs have left in a cluster that a kubeconfig names.
async fn left_in(client: &Client, namespace: &str) -> anyhow::Result<Vec<String>> {
    let held = holders(client, namespace).await?;
    for holder in &held {
        println!("{} has the cluster since {}, and stays", holder.who, holder.since);
    }
    let own = match names(client).await {
        Err(error) if is_forbidden(&error) => BTreeSet::new(),
        names => names?,
    };
    let mut would = if held.is_empty() {
        wrong_in(client, namespace).await?
    } else {
        Vec::new()
    };
    let is_held = |run: &String| held.iter().any(|holder| holder.run == *run);
    for run in own.iter().filter(|run| !is_held(run)) {
        let all = namespaces(client, run, None).await?;
        would.push(format!(
            "remove what {run} has left: the namespaces {}",
            all.join(", ")
        ));
    }
    let confined = runs_in(client, namespace).await?;
    for run in confined.iter().filter(|run| !own.contains(*run) && !is_held(run)) {
        would.push(format!("remove what {run} has left in the namespace {namespace}"));
    }
    let jobs = left_jobs(client, namespace).await?.into_iter();
    would.extend(
        jobs.filter(|job| !job.is_under_way)
            .map(|job| format!("remove what the Job {}/{} has left", job.namespace, job.name)),
    );
    Ok(would)
}

/// What `plumbline heal` would undo.
///
/// # Errors
/// Something can't be read; a run is in progress.
pub(super) async fn heal(arguments: Where) -> anyhow::Result<ExitCode> {
    if let Some((connection, namespace)) = arguments.existing() {
        return heal_existing(&connection, &namespace).await;
    }
    let Where { labs, kind, .. } = arguments;
    let mut would = Vec::new();
    if let Some(name) = kind {
        would.extend(wrong_in_kind(&name).await?);
        return Ok(shown(&would));
    }
    let mut is_known = true;
    // The others are still looked at.
    let mut add = |of: String, found: anyhow::Result<Vec<String>>| match found {
        Ok(found) => would.extend(found.into_iter().map(|words| format!("{words} ({of})"))),
        Err(error) => {
            eprintln!("{of}: {error:#}");
            is_known = false;
        }
    };
    for name in labs.names()? {
        match attach(&name).await {
            Some(lab) => add(format!("lab {name}"), wrong_on_nodes(lab.cluster()).await),
            None if labs.lab.is_some() => bail!("the lab {name} is not up: there is nothing to heal"),
            // `cleanup` removes a dead lab.
            None => {}
        }
    }
    if labs.lab.is_none() {
        for name in kind::kept()? {
            add(format!("kind cluster {name}"), wrong_in_kind(&name).await);
        }
    }
    let shown = shown(&would);
    Ok(if is_known { shown } else { ExitCode::FAILURE })
}

async fn wrong_in_kind(name: &str) -> anyhow::Result<Vec<String>> {
    wrong_on_nodes(KindCluster::attach(name).await?.cluster()).await
}

async fn heal_existing(connection: &Connection, namespace: &str) -> anyhow::Result<ExitCode> {
    let client = connection.client().await?;
    if let Some(holder) = holders(&client, namespace).await?.first() {
        bail!(
            "{} has the cluster since {}, and heals its own faults; end it first",
            holder.who,
            holder.since
        );
    }
    Ok(shown(&wrong_in(&client, namespace).await?))
}

/// What killed runs have changed in a cluster that a kubeconfig names, as far as the API shows it.
async fn wrong_in(client: &Client, namespace: &str) -> anyhow::Result<Vec<String>> {
    let of_runs = ListParams::default().labels(RUN_LABEL);
    let mut would = Vec::new();
    let sets: Api<DaemonSet> = Api::all(client.clone());
    let nodes: Api<Node> = Api::all(client.clone());
    // An account that may not list them has changed none; the lab's API server has no DaemonSets.
    let missing = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.is_forbidden() || status.is_not_found());
    match sets.list(&of_runs).await {
        Err(error) if missing(&error) => {}
        sets => {
            for set in sets.context("failed to list DaemonSets that runs have borrowed")? {
                let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
                would.push(format!("give back the DaemonSet {namespace}/{name} as it was"));
            }
        }
    }
    match nodes.list(&of_runs).await {
        Err(error) if missing(&error) => {}
        nodes => {
            for node in nodes.context("failed to list nodes whose agent a run has stopped")? {
                would.push(format!("let the node {} have its agent again", node.name_any()));
            }
        }
    }
    if let Some(left) = left_on_nodes(client, namespace).await? {
        let nodes: Vec<&str> = left.nodes.iter().map(String::as_str).collect();
        would.push(format!(
            "look on the nodes {} for what a killed run has left, through a pod on each, and undo it",
            nodes.join(", ")
        ));
    }
    Ok(would)
}

/// What is wrong on the nodes of a lab or of a kind cluster; what living processes hold is printed.
async fn wrong_on_nodes(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let description = cluster.describe();
    let mut would = Vec::new();
    if !description.capabilities.contains(&Capability::Node) {
        return Ok(would);
    }
    for node in &description.nodes {
        let found = faults::look(cluster, &node.name).await?;
        for words in found.held {
            println!("{words}");
        }
        would.extend(found.undone.into_iter().map(|words| format!("undo: {words}")));
    }
    Ok(would)
}

/// Prints what would be done.
fn shown(would: &[String]) -> ExitCode {
    for words in would {
        println!("would {words}");
    }
    if would.is_empty() {
        println!("nothing to do");
    }
    ExitCode::SUCCESS
}
