//! The agents of a cluster that is used again after its last run was killed.

use std::{collections::BTreeSet, path::PathBuf};

use cluster::{AgentControl as _, ApiEndpoint, Capability, ClusterError, RUN_LABEL, Variant};
use existing::give_back;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::*;
use crate::{
    manifests::NAMESPACE,
    test_api::{TestApi, typed},
};

/// Name of the cluster, by which its runs label what they change.
const CLUSTER: &str = "test";
/// A node whose agent runs in a variant.
const VARIANT: &str = "variant";
/// A node whose agent was redirected, and is stopped.
const REDIRECTED: &str = "redirected";
/// A node whose agent was stopped.
const DOWN: &str = "down";
/// A node whose agent was not changed.
const WHOLE: &str = "whole";
/// A node that a run with a kubeconfig uses.
const OTHERS: &str = "others";
const NODES: [&str; 5] = [VARIANT, REDIRECTED, DOWN, WHOLE, OTHERS];

struct TestCluster {
    test_api: TestApi,
    deployed: Deployed,
    nodes: Arc<Vec<Container>>,
}

impl TestCluster {
    async fn new() -> Self {
        let test_api = TestApi::start().await;
        let nodes: Api<Node> = Api::all(test_api.client.clone());
        for name in NODES {
            let node = typed(json!({"metadata": {"name": name}}));
            nodes.create(&PostParams::default(), &node).await.expect("a node");
        }
        let own = json!({
            "metadata": {"name": AGENT},
            "data": {CONFIGURATION: "cgroup: /c\napi-server:\n- https://172.18.0.3:6443\n"},
        });
        let maps: Api<ConfigMap> = Api::namespaced(test_api.client.clone(), NAMESPACE);
        let made = maps.create(&PostParams::default(), &typed(own)).await;
        made.expect("a ConfigMap");
        Self {
            test_api,
            deployed: Deployed::find(KindTarget::Reference, PodNetwork::Kind).expect("the reference agent"),
            nodes: Arc::new(NODES.map(container).into()),
        }
    }

    /// The agents as each process has them.
    fn agents(&self) -> InstalledAgents {
        self.deployed.agents(&self.test_api.client, CLUSTER, &self.nodes)
    }

    /// A pod of an agent, started twice.
    async fn runs(&self, node: &str, mut metadata: Value) {
        let name = format!("agent-{node}");
        metadata["name"] = name.clone().into();
        let pod = typed(json!({
            "metadata": metadata,
            "spec": {"nodeName": node, "containers": [{"name": "agent", "image": "agent"}]},
        }));
        let pods = self.pods();
        pods.create(&PostParams::default(), &pod).await.expect("a pod");
        let status = json!({"status": {"phase": "Running", "containerStatuses": [{
            "name": "agent", "image": "agent", "imageID": "", "ready": true, "restartCount": 1,
            "containerID": "containerd://abc", "state": {"running": {}},
        }]}});
        let params = PatchParams::default();
        let done = pods.patch_status(&name, &params, &Patch::Merge(status)).await;
        done.expect("its status");
    }

    async fn label(&self, node: &str, run: &str) {
        let nodes: Api<Node> = Api::all(self.test_api.client.clone());
        let patch = Patch::Merge(json!({"metadata": {"labels": {RUN_LABEL: run}}}));
        let done = nodes.patch(node, &PatchParams::default(), &patch).await;
        done.expect("a label");
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.test_api.client.clone(), NAMESPACE)
    }

    /// Names of pods, of ConfigMaps, and of nodes whose agents are stopped.
    async fn there(&self) -> [Vec<String>; 3] {
        let client = &self.test_api.client;
        let (maps, nodes): (Api<ConfigMap>, Api<Node>) = (
            Api::namespaced(client.clone(), NAMESPACE),
            Api::all(client.clone()),
        );
        let all = ListParams::default();
        let (pods, maps) = (self.pods().list(&all).await, maps.list(&all).await);
        let stopped = nodes.list(&all.labels(RUN_LABEL)).await;
        [
            names(&pods.expect("pods").items),
            names(&maps.expect("maps").items),
            names(&stopped.expect("nodes").items),
        ]
    }
}

fn names<T: Resource>(all: &[T]) -> Vec<String> {
    all.iter().map(ResourceExt::name_any).collect()
}

fn container(name: &str) -> Container {
    Container {
        image: String::new(),
        name: name.to_owned(),
        is_control_plane: false,
        pid: 0,
        network: "kind".to_owned(),
        addresses: Vec::new(),
        cgroup: PathBuf::new(),
        cgroup_root: PathBuf::new(),
        bpffs: PathBuf::new(),
    }
}

/// Deletes terminating pods, as kubelets do.
async fn kubelets(pods: Api<Pod>) {
    let now = DeleteParams::default().grace_period(0);
    loop {
        for pod in pods.list(&ListParams::default()).await.expect("pods") {
            if pod.metadata.deletion_timestamp.is_some() {
                // The pod may be gone meanwhile.
                let _ = pods.delete(&pod.name_any(), &now).await;
            }
        }
        sleep(LIMITS.look).await;
    }
}

#[tokio::test]
async fn the_agents_of_a_cluster_that_is_used_again_begin_anew_whatever_a_killed_run_had_done_to_them() {
    let test_cluster = TestCluster::new().await;
    let client = &test_cluster.test_api.client;
    let endpoint = ApiEndpoint {
        server: "10.96.0.1:443".parse().expect("an address"),
        further: Vec::new(),
    };
    let custom = json!({
        "labels": {
            "app.kubernetes.io/name": format!("{AGENT}-custom"),
            RUN_LABEL: CLUSTER, "plumbline-run/custom-agent": "true",
        },
        "annotations": {"plumbline-run/variant": "\"socket-lb-off\""},
    });
    test_cluster.runs(VARIANT, custom).await;
    let redirected = test_cluster
        .agents()
        .set_api_endpoint(REDIRECTED, Some(&endpoint))
        .await;
    redirected.expect("an endpoint");
    for (node, run) in [
        (VARIANT, CLUSTER),
        (REDIRECTED, CLUSTER),
        (DOWN, CLUSTER),
        (OTHERS, "run-1"),
    ] {
        test_cluster.label(node, run).await;
    }
    let own = json!({"labels": {"app.kubernetes.io/name": AGENT}});
    test_cluster.runs(WHOLE, own).await;

    // Another process knows what the killed one has done.
    let agents = test_cluster.agents();
    let state = async |node| agents.state(node).await.expect("a state");
    let variant = state(VARIANT).await;
    assert_eq!((variant.variant, variant.way), (Some(Variant::SocketLbOff), None));
    let redirected = state(REDIRECTED).await;
    assert_eq!((redirected.variant, redirected.way), (None, Some(endpoint)));
    let [_, maps_before, stopped] = test_cluster.there().await;
    assert_eq!((maps_before.len(), stopped.len()), (2, 4));

    let kubelets = tokio::spawn(kubelets(test_cluster.pods()));
    let done = give_back(client, Some(CLUSTER)).await;
    assert_eq!(done.expect("agents that begin anew").len(), 5);
    kubelets.abort();

    let [pods, maps, stopped] = test_cluster.there().await;
    assert_eq!(pods, [format!("agent-{WHOLE}")], "the DaemonSet's own stays");
    assert_eq!(maps, [AGENT]);
    assert_eq!(stopped, [OTHERS], "another run keeps that agent stopped");
    for node in NODES {
        let state = state(node).await;
        assert_eq!((state.variant, state.way), (None, None), "{node}");
    }
    // The starts of a removed pod still count, so that no start is taken for the first.
    assert_eq!((state(VARIANT).await.starts, state(WHOLE).await.starts), (2, 2));
    assert_eq!(state(WHOLE).await.last_exit, None);
}

#[tokio::test]
async fn an_agent_that_runs_is_not_redirected() {
    let test_cluster = TestCluster::new().await;
    let own = json!({"labels": {"app.kubernetes.io/name": AGENT}});
    test_cluster.runs(WHOLE, own).await;
    let refused = test_cluster.agents().set_api_endpoint(WHOLE, None).await;
    assert_eq!(
        refused.expect_err("it runs").to_string(),
        format!("failed to set the API endpoint of the agent of {WHOLE}: it runs; stop it first")
    );
}

#[tokio::test]
async fn only_the_reference_agent_has_other_configurations_on_kind() {
    let test_cluster = TestCluster::new().await;
    let of = |kind, network| {
        let deployed = Deployed::find(kind, network).expect("a target");
        deployed.agents(&test_cluster.test_api.client, CLUSTER, &test_cluster.nodes)
    };
    let proxy = of(KindTarget::KubeProxyNftables, PodNetwork::Kind);
    let refused = [
        proxy.start(DOWN, Some(Variant::SocketLbOff)).await,
        proxy.set_api_endpoint(DOWN, None).await,
    ];
    for refused in refused {
        assert!(
            matches!(refused, Err(ClusterError::Unsupported { .. })),
            "{refused:?}"
        );
    }
    let both = BTreeSet::from([Capability::Node, Capability::AgentCleanup]);
    let with_pods: BTreeSet<_> = both
        .iter()
        .copied()
        .chain([Capability::PodsWithoutAgents])
        .collect();
    assert_eq!(proxy.capabilities(), with_pods);
    assert_eq!(proxy.pins(), [EVERY_PIN]);
    let network = of(KindTarget::Reference, PodNetwork::Agent);
    assert_eq!(network.capabilities(), both, "pods need the agents");
}
