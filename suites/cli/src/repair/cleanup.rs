//! `plumbline cleanup`.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use harness::{cleanup::Made, limits::Limits};
use lab::{Downed, LIMITS, LabCluster};

use super::{Where, attach, clusters, dry_run, runs};
use crate::plural::seconds;

/// Interval between checks of a lab that is shutting down.
const LOOK: Duration = Duration::from_millis(100);

/// Removes dead labs and kind clusters, and the namespaces of dead runs in live labs; or those in the cluster of a
/// kubeconfig or in a kept kind cluster.
///
/// # Errors
/// Something can't be removed, or a lab neither answers nor ends.
pub(crate) async fn cleanup(arguments: Where) -> anyhow::Result<ExitCode> {
    if arguments.dry_run {
        return dry_run::cleanup(arguments).await;
    }
    if let Some((connection, namespace)) = arguments.existing() {
        return clusters::cleanup(&connection, &namespace).await;
    }
    let Where { labs, kind, .. } = arguments;
    if let Some(name) = kind {
        return clusters::cleanup_kind(&name).await;
    }
    let mut removed = 0;
    if labs.lab.is_none() {
        for name in kind::remove_dead().await? {
            println!("the run of the kind cluster {name} was dead; it is removed");
            removed += 1;
        }
    }
    for name in labs.names()? {
        removed += match find(&name).await? {
            Some(lab) => objects(&name, &lab).await?,
            None => 0,
        };
    }
    if removed == 0 {
        println!("nothing else is left");
    }
    Ok(ExitCode::SUCCESS)
}

/// Connects to the lab, if it runs; removes the remains of a dead one.
async fn find(name: &str) -> anyhow::Result<Option<LabCluster>> {
    let began = Instant::now();
    loop {
        match lab::remove_dead(name)? {
            Downed::Leftovers => {
                println!("lab {name} was dead; what it left is removed");
                return Ok(None);
            }
            Downed::Nothing => return Ok(None),
            Downed::Up => {}
        }
        if let Some(lab) = attach(name).await {
            return Ok(Some(lab));
        }
        anyhow::ensure!(
            began.elapsed() < LIMITS.down,
            "the lab {name} neither answers nor lets go within {}: `plumbline lab down --name {name}` ends it",
            seconds(LIMITS.down)
        );
        tokio::time::sleep(LOOK).await;
    }
}

/// Removes the namespaces of dead runs; returns the number of runs.
async fn objects(name: &str, lab: &LabCluster) -> anyhow::Result<usize> {
    let client = lab.cluster().client();
    let runs = runs(&client).await?;
    for run in &runs.living {
        println!("lab {name}: {run} is under way, and stays");
    }
    for run in &runs.dead {
        let made = Made {
            run,
            case: None,
            confined: None,
        };
        made.cleanup(&client, Limits::default().cleanup).await?;
        println!("lab {name}: the namespaces of {run} are removed");
    }
    Ok(runs.dead.len())
}
