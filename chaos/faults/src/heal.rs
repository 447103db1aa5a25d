//! Undoes on a node what faults of dead processes have left there.

use cluster::Cluster;

use crate::{
    FaultError, commands,
    journal::Undone,
    pins::{covered, uncover},
    redirected_agent::redirect_agent,
};

/// What was done on a node. Each line is a sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Healed {
    /// What was wrong, and is undone.
    pub undone: Vec<String>,
    /// What belongs to a process that is still alive.
    pub held: Vec<String>,
    /// Whether the agent was started for it: it may take a while to be ready.
    pub started: bool,
}

/// Undoes what faults of dead processes have left on a node: programs, mounts and cgroups of helpers that were killed,
/// hidden pins, and an agent that is stopped, reconfigured or redirected.
///
/// Idempotent. It touches nothing that an implementation or another owner made. No faults may be made meanwhile.
///
/// # Errors
/// The first part that could not be undone; the agent is started all the same.
pub async fn heal(cluster: &Cluster, node: &str) -> Result<Healed, FaultError> {
    let (mut healed, first) = match of_helpers(cluster, node, &[]).await {
        Ok(healed) => (healed, Ok(())),
        Err(error) => (Healed::default(), Err(error)),
    };
    let state = cluster.agents()?.state(node).await?;
    let mut of_agent = Vec::new();
    if covered(cluster, node).await? {
        uncover(cluster, node).await?;
        of_agent.push(format!(
            "the pins of {node} were hidden by a bpffs of a case, and are seen again; its agent is started again"
        ));
    }
    if state.way.is_some() {
        redirect_agent(cluster, node, None).await?;
        of_agent.push(format!(
            "the agent of {node} had an API endpoint of a case, and has its own again"
        ));
    } else if state.variant.is_some() {
        cluster.agents()?.start(node, None).await?;
        of_agent.push(format!(
            "the agent of {node} was in another configuration than its target's, and is started again"
        ));
    } else if state.pid.is_none() {
        cluster.agents()?.start(node, None).await?;
        of_agent.push(format!("the agent of {node} was stopped, and is started"));
    }
    healed.started = !of_agent.is_empty();
    healed.undone.extend(of_agent);
    first.map(|()| healed)
}

/// What [`heal`] would find wrong on a node, as `undone`; changes nothing.
///
/// # Errors
/// The node can't be read.
pub async fn look(cluster: &Cluster, node: &str) -> Result<Healed, FaultError> {
    let mut found = of_helpers(cluster, node, &["--dry-run"]).await?;
    let state = cluster.agents()?.state(node).await?;
    if covered(cluster, node).await? {
        found
            .undone
            .push(format!("the pins of {node} are hidden by a bpffs of a case"));
    }
    if state.way.is_some() {
        found
            .undone
            .push(format!("the agent of {node} has an API endpoint of a case"));
    } else if state.variant.is_some() {
        found.undone.push(format!(
            "the agent of {node} is in another configuration than its target's"
        ));
    } else if state.pid.is_none() {
        found.undone.push(format!("the agent of {node} is stopped"));
    }
    Ok(found)
}

/// Undoes deeds of helpers, or reads them.
async fn of_helpers(cluster: &Cluster, node: &str, options: &[&str]) -> Result<Healed, FaultError> {
    let cgroup = cluster.nodes()?.cgroup_root().to_string_lossy().into_owned();
    let arguments = [&["undo", "--cgroup", &cgroup], options].concat();
    let Undone { undone, held } = commands::plumbline::<Undone>(cluster, node, &arguments).await?;
    let on_node = |line: String| format!("{node}: {line}");
    Ok(Healed {
        undone: undone.into_iter().map(on_node).collect(),
        held: held.into_iter().map(on_node).collect(),
        started: false,
    })
}
