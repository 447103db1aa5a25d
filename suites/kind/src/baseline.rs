//! State of nodes before their agents are installed: programs, pins and rules of container runtime and CNI plugin.

use std::{collections::BTreeMap, path::Path};

use kube::Client;

use super::{
    KindError, LIMITS, PROGRAMS, PodNetwork, containers::Container, deployment, process_lookup, state::Folder,
};

/// File in the cluster's folder.
const FILE: &str = "baseline.json";

/// Counts by kind, for each node.
pub(super) type Baseline = BTreeMap<String, BTreeMap<String, usize>>;

/// Records the state of a new cluster when kind's CNI plugin is complete, whose objects are not the agents'.
pub(super) async fn note(
    client: &Client,
    folder: &Folder,
    nodes: &[Container],
    network: PodNetwork,
) -> Result<(), KindError> {
    if network == PodNetwork::Kind {
        deployment::nodes_ready(client).await?;
    }
    folder.put(FILE, &look(nodes).await?)
}

/// The recorded state, if there is one.
pub(super) fn read(folder: &Folder) -> Result<Option<Baseline>, KindError> {
    folder.read(FILE)
}

/// Counts on all nodes, by the same `plumbline node remains` that cases use.
async fn look(nodes: &[Container]) -> Result<Baseline, KindError> {
    let mut all = Baseline::new();
    for node in nodes {
        let what = format!("count what the node {} has without an agent", node.name);
        let program = Path::new(PROGRAMS).join("plumbline");
        let arguments = ["node", "remains", "--cgroup"].map(str::to_owned).into_iter();
        let arguments: Vec<String> = arguments
            .chain([node.cgroup_root.to_string_lossy().into_owned()])
            .collect();
        let output = process_lookup::on_node(node, &program, &arguments, &what, LIMITS.count).await?;
        let counts = serde_json::from_str(&output).map_err(|error| KindError::Unexpected {
            what,
            why: format!("it said {output:?}: {error}"),
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
        super::test_api::{TestApi, typed},
        *,
    };

    /// Number of checks after which the wait continues.
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
        let test_api = TestApi::start().await;
        let nodes = unready(&test_api.client).await;
        let noting = {
            let (client, folder) = (test_api.client.clone(), test_api.folder.clone());
            tokio::spawn(async move { note(&client, &folder, &[], PodNetwork::Kind).await })
        };
        sleep(LIMITS.look * LOOKS).await;
        assert_eq!(read(&test_api.folder).expect("no file"), None);
        ready(&nodes, "True").await;
        sleep(LIMITS.look * LOOKS).await;
        assert!(!noting.is_finished(), "pods are still kept away");
        let free = Patch::Merge(json!({"spec": {"taints": Value::Null}}));
        let done = nodes.patch("n1", &PatchParams::default(), &free).await;
        done.expect("a node without taints");
        noting.await.expect("a task").expect("a note");
        assert_eq!(read(&test_api.folder).expect("a file"), Some(Baseline::new()));
    }

    #[tokio::test]
    async fn a_network_that_is_the_agents_is_not_waited_for() {
        let test_api = TestApi::start().await;
        unready(&test_api.client).await;
        let noted = note(&test_api.client, &test_api.folder, &[], PodNetwork::Agent).await;
        noted.expect("a note");
        assert!(read(&test_api.folder).expect("a file").is_some());
    }
}
