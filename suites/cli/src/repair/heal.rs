//! `plumbline heal`.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use kind::KindCluster;
use lab::{LIMITS, LabCluster};

use super::{Where, attach, dry_run, nodes, runs};
use crate::plural::seconds;

/// Interval between checks of an agent.
const LOOK: Duration = Duration::from_millis(50);

/// Undoes what killed runs have done to nodes of labs and kept kind clusters, of one of them, or of the cluster of a
/// kubeconfig ([`faults::heal`]). Faults of a lab's API servers and of helpers on nodes end with the process that holds
/// them; faults that are still held are shown.
///
/// # Errors
/// A run is in progress, which stops agents on purpose; or an agent does not start.
pub(crate) async fn heal(arguments: Where) -> anyhow::Result<ExitCode> {
    if arguments.dry_run {
        return dry_run::heal(arguments).await;
    }
    if let Some((connection, namespace)) = arguments.existing() {
        let (undone, is_whole) = nodes::heal(&connection, &namespace).await?;
        if undone == 0 && is_whole {
            println!("nothing is wrong");
        }
        return Ok(ExitCode::from(u8::from(!is_whole)));
    }
    let Where {
        labs: arguments,
        kind,
        ..
    } = arguments;
    if let Some(name) = kind {
        let healed = heal_kind(&name).await;
        healed.with_context(|| format!("nothing more is undone in the kind cluster {name}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut is_whole = true;
    for name in arguments.names()? {
        match attach(&name).await {
            Some(lab) => match heal_lab(&name, &lab).await {
                Ok(whole) => is_whole &= whole,
                Err(error) if arguments.lab.is_some() => return Err(error),
                // The other labs are still healed.
                Err(error) => {
                    eprintln!("lab {name}: {error:#}");
                    is_whole = false;
                }
            },
            None if arguments.lab.is_some() => bail!("the lab {name} is not up: there is nothing to heal"),
            // `cleanup` removes a dead lab.
            None => {}
        }
    }
    // `--lab` names a lab, so kind clusters are left alone.
    let kept = if arguments.lab.is_none() {
        kind::kept()?
    } else {
        Vec::new()
    };
    for name in kept {
        if let Err(error) = heal_kind(&name).await {
            eprintln!("kind cluster {name}: {error:#}");
            is_whole = false;
        }
    }
    Ok(ExitCode::from(u8::from(!is_whole)))
}

/// Heals a kept kind cluster, its API servers first: the rest needs them.
async fn heal_kind(name: &str) -> anyhow::Result<()> {
    let Some(cluster) = KindCluster::attach_alone(name).await? else {
        bail!("a run is under way in it, and heals its own faults; end it first");
    };
    // API servers come first. Runs by a kubeconfig hold no lock, and make no faults of API servers.
    let mut undone = cluster.settle().await?;
    if let Err(error) = cluster.cluster().intact().await {
        bail!(
            "its API does not answer: {error}. Expected that all its nodes run: `docker ps --all --filter \
             label=io.x-k8s.kind.cluster={name}` shows them"
        );
    }
    let living = runs(&cluster.cluster().client()).await?.living;
    if let Some(run) = living.first() {
        bail!("{run} is under way in it, and heals its own faults; end it first");
    }
    undone.extend(cluster.take_back().await?);
    for node in &cluster.cluster().describe().nodes {
        undone.extend(faults::heal(cluster.cluster(), &node.name).await?.undone);
    }
    for words in &undone {
        println!("kind cluster {name}: {words}");
    }
    if undone.is_empty() {
        println!("kind cluster {name}: nothing is wrong");
    }
    Ok(())
}

/// Heals a lab; returns whether it is healthy.
async fn heal_lab(name: &str, lab: &LabCluster) -> anyhow::Result<bool> {
    let living = runs(&lab.cluster().client()).await?.living;
    if let Some(run) = living.first() {
        bail!("{run} is under way in the lab {name}, and heals its own faults; end it first");
    }
    let status = lab.status().await?;
    let mut healed = 0;
    let mut is_held = !status.api_faults.is_empty();
    for node in &status.nodes {
        let done = faults::heal(lab.cluster(), &node.name).await?;
        for words in done.undone.iter().chain(&done.held) {
            println!("lab {name}: {words}");
        }
        if done.started {
            runs_again(lab, &node.name).await?;
        }
        healed += done.undone.len();
        is_held |= !done.held.is_empty();
    }
    for active in &status.api_faults {
        println!(
            "lab {name}: {}, for {:.1} s at most; the process that holds it lives, and ends it",
            active.fault,
            active.left.as_secs_f64()
        );
    }
    if healed == 0 && !is_held {
        println!("lab {name}: nothing is wrong");
    }
    Ok(!is_held)
}

async fn runs_again(lab: &LabCluster, node: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    while lab.cluster().agents()?.state(node).await?.pid.is_none() {
        ensure!(
            began.elapsed() < LIMITS.agents_ready,
            "the agent of {node} does not run {} after its start: `plumbline lab logs {node}` says why",
            seconds(LIMITS.agents_ready)
        );
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
