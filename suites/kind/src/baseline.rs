//! What nodes have before their agents are installed: programs, pins and rules of their runtime and network.

use std::{collections::BTreeMap, path::Path};

use kube::Client;

use super::{KindError, LIMITS, PROGRAMS, PodNetwork, agents, containers::Container, placing, state::Folder};

/// The file with it, for other processes.
const FILE: &str = "baseline.json";

/// Of each node by its name, how many there are of each kind.
pub(super) type Baseline = BTreeMap<String, BTreeMap<String, usize>>;

/// Looks at a new cluster, when the network that kind installs is complete: what that makes is none of the agents'.
pub(super) async fn note(
    client: &Client,
    folder: &Folder,
    nodes: &[Container],
    network: PodNetwork,
) -> Result<(), KindError> {
    if network == PodNetwork::Kind {
        agents::nodes_ready(client).await?;
    }
    folder.put(FILE, &look(nodes).await?)
}

/// What was noted, if the cluster was looked at.
pub(super) fn read(folder: &Folder) -> Result<Option<Baseline>, KindError> {
    folder.read(FILE)
}

/// Looks at all nodes, as cases do later: by `plumbline node remains`, which is on them.
async fn look(nodes: &[Container]) -> Result<Baseline, KindError> {
    let mut all = Baseline::new();
    for node in nodes {
        let what = format!("count what the node {} has without an agent", node.name);
        let program = Path::new(PROGRAMS).join("plumbline");
        let arguments = ["node", "remains", "--cgroup"].map(str::to_owned).into_iter();
        let arguments: Vec<String> = arguments
            .chain([node.cgroup_root.to_string_lossy().into_owned()])
            .collect();
        let said = placing::on_node(node, &program, &arguments, &what, LIMITS.count).await?;
        let counts = serde_json::from_str(&said).map_err(|error| KindError::Unexpected {
            what,
            why: format!("it said {said:?}: {error}"),
        })?;
        all.insert(node.name.clone(), counts);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::{
        Api,
        api::{Patch, PatchParams, PostParams},
    };
    use serde_json::{Value, json};
    use tokio::time::sleep;

    use super::{
        super::served::{Served, typed},
        *,
    };

    /// So often a wait has looked that goes on.
    const LOOKS: u32 = 5;

    async fn unready(client: &Client) -> Api<Node> {
        let nodes: Api<Node> = Api::all(client.clone());
        let node = typed(json!({
            "metadata": {"name": "n1"},
            "spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]},
        }));
        nodes.create(&PostParams::default(), &node).await.expect("a node");
        ready(&nodes, "False").await;
        nodes
    }

    async fn ready(nodes: &Api<Node>, status: &str) {
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        let params = PatchParams::default();
        let done = nodes.patch_status("n1", &params, &Patch::Merge(patch)).await;
        done.expect("a status");
    }

    #[tokio::test]
    async fn a_new_cluster_is_looked_at_when_the_network_that_kind_installs_is_complete() {
        let served = Served::start().await;
        let nodes = unready(&served.client).await;
        let noting = {
            let (client, folder) = (served.client.clone(), served.folder.clone());
            tokio::spawn(async move { note(&client, &folder, &[], PodNetwork::Kind).await })
        };
        sleep(LIMITS.look * LOOKS).await;
        assert_eq!(read(&served.folder).expect("no file"), None);
        ready(&nodes, "True").await;
        sleep(LIMITS.look * LOOKS).await;
        assert!(!noting.is_finished(), "pods are still kept away");
        let free = Patch::Merge(json!({"spec": {"taints": Value::Null}}));
        let done = nodes.patch("n1", &PatchParams::default(), &free).await;
        done.expect("a node without taints");
        noting.await.expect("a task").expect("a note");
        assert_eq!(read(&served.folder).expect("a file"), Some(Baseline::new()));
    }

    #[tokio::test]
    async fn a_network_that_is_the_agents_is_not_waited_for() {
        let served = Served::start().await;
        unready(&served.client).await;
        let noted = note(&served.client, &served.folder, &[], PodNetwork::Agent).await;
        noted.expect("a note");
        assert!(read(&served.folder).expect("a file").is_some());
    }
}
