//! What is undone on a node when whoever made its faults is dead.

use cluster::Cluster;

use crate::{
    FaultError,
    agent::on_host,
    notes::Undone,
    pins::{covered, uncover},
    redirected_agent::lead,
};

/// What became of a node, in words, one for each thing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Healed {
    /// What was wrong, and is undone.
    pub undone: Vec<String>,
    /// What is somebody's who lives.
    pub held: Vec<String>,
    /// Whether the agent was started for it: it may take a while to be ready.
    pub started: bool,
}

/// Undoes what faults of dead processes have left on a node: programs, mounts and cgroups of helpers that were killed with
/// their users; pins that nobody finds; an agent that is stopped, runs in another configuration, or is led elsewhere.
/// Idempotent; nothing that an implementation or somebody else made is touched. Nobody else may make faults meanwhile.
///
/// # Errors
/// The first that can't be undone, what is left after it included.
pub async fn heal(cluster: &Cluster, node: &str) -> Result<Healed, FaultError> {
    let cgroup = cluster.nodes()?.cgroup_root().to_string_lossy().into_owned();
    let said = on_host(cluster, node, &["plumbline", "node", "undo", "--cgroup", &cgroup]).await;
    // An agent is started all the same.
    let (mut healed, first) = match said.and_then(|said| undone(node, &said)) {
        Ok(Undone { undone, held }) => {
            let of_node = |words: String| format!("{node}: {words}");
            let healed = Healed {
                undone: undone.into_iter().map(of_node).collect(),
                held: held.into_iter().map(of_node).collect(),
                started: false,
            };
            (healed, Ok(()))
        }
        Err(error) => (Healed::default(), Err(error)),
    };
    let state = cluster.agents()?.state(node).await?;
    let mut was = Vec::new();
    if covered(cluster, node).await? {
        uncover(cluster, node).await?;
        was.push(format!(
            "the pins of {node} were hidden by a bpffs of a case, and are seen again; its agent is started again"
        ));
    }
    if state.way.is_some() {
        lead(cluster, node, None).await?;
        was.push(format!(
            "the agent of {node} was led to the API by a way of a case, and is led back"
        ));
    } else if state.variant.is_some() {
        cluster.agents()?.start(node, None).await?;
        was.push(format!(
            "the agent of {node} was in another configuration than its target's, and is started again"
        ));
    } else if state.pid.is_none() {
        cluster.agents()?.start(node, None).await?;
        was.push(format!("the agent of {node} was stopped, and is started"));
    }
    healed.started = !was.is_empty();
    healed.undone.extend(was);
    first.map(|()| healed)
}

fn undone(node: &str, said: &str) -> Result<Undone, FaultError> {
    serde_json::from_str(said).map_err(|error| FaultError::Helper {
        node: node.to_owned(),
        what: format!("wrote {said:?}"),
        stderr: error.to_string(),
    })
}
