//! `plumbline lab up`.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use super::{FamilyArgs, TargetArgs, servers::ControlPlaneArgs};
use crate::plural::seconds;
use cluster::AgentState;
use lab::{DEFAULT_NAME, LIMITS, LabCluster, LabConfig, Lifetime, check_name, sibling};

/// Interval between checks of the agents' readiness.
const READINESS_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, clap::Args)]
pub(crate) struct UpArgs {
    /// The lab's name; several labs can run at once.
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,
    /// Number of nodes, 1 to 9, in zone-a and zone-b in turn.
    #[arg(long, default_value_t = 2)]
    nodes: u8,
    #[command(flatten)]
    families: FamilyArgs,
    #[command(flatten)]
    control_plane: ControlPlaneArgs,
    #[command(flatten)]
    target: TargetArgs,
}

pub(super) async fn run(args: UpArgs) -> anyhow::Result<ExitCode> {
    let begin = Instant::now();
    let config = config(args)?;
    let lab = LabCluster::up(&config, Lifetime::Detached, |step| eprintln!("  {step}")).await?;
    eprintln!("  readiness of the agents");
    let late = wait_for_agents(&lab).await?;
    let name = &config.name;
    let option = if name == DEFAULT_NAME {
        String::new()
    } else {
        format!(" --name {name}")
    };
    println!(
        "lab {name} is up after {}: {} nodes",
        seconds(begin.elapsed()),
        config.nodes
    );
    println!();
    println!("  export KUBECONFIG={}", lab.kubeconfig().display());
    println!("  kubectl get nodes");
    println!("  plumbline lab exec{option} node1 -- COMMAND     also: outside, pod/NAMESPACE/NAME");
    println!("  plumbline lab status{option}");
    println!("  plumbline lab down{option}");
    for (node, state) in &late {
        let said = match (state.pid, state.ready) {
            (None, _) => "does not run",
            (Some(_), None) => "does not answer",
            (Some(_), Some(_)) => "is not ready",
        };
        println!();
        println!(
            "warning: the agent on {node} {said} after {}; see",
            seconds(LIMITS.agents_ready)
        );
        println!("  plumbline lab logs{option} {node}");
    }
    Ok(ExitCode::SUCCESS)
}

fn config(args: UpArgs) -> anyhow::Result<LabConfig> {
    let UpArgs {
        name,
        nodes,
        families,
        control_plane,
        target,
    } = args;
    check_name(&name)?;
    Ok(LabConfig {
        name,
        nodes,
        families: families.families(),
        control_plane: control_plane.control_plane()?,
        timeout_scale: 1,
        agent: target.agent()?,
        plumbline: sibling("plumbline")?,
    })
}

/// Waits until every agent is ready; returns those that are not within the limit.
async fn wait_for_agents(lab: &LabCluster) -> anyhow::Result<Vec<(String, AgentState)>> {
    let deadline = Instant::now() + LIMITS.agents_ready;
    let mut waiting: Vec<String> = lab
        .cluster()
        .describe()
        .nodes
        .iter()
        .map(|node| node.name.clone())
        .collect();
    let mut late = Vec::new();
    while let Some(node) = waiting.last() {
        let state = lab.cluster().agents()?.state(node).await?;
        let ready = state.ready == Some(true);
        if !ready && Instant::now() < deadline {
            tokio::time::sleep(READINESS_INTERVAL).await;
            continue;
        }
        if !ready {
            late.push((node.clone(), state));
        }
        waiting.pop();
    }
    late.reverse();
    Ok(late)
}
