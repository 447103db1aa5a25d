//! Resets the agents of a reused cluster after its last run was killed.

use cluster::target::Target;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::*;
use crate::{
    manifests::STOPPED,
    state::AgentRecord,
    test_api::{TestApi, typed},
};

/// A node whose agent runs in a variant, with a record of it.
const VARIANT: &str = "variant";
/// A node whose agent was redirected, and is stopped.
const REDIRECTED: &str = "redirected";
/// A node with a custom pod without a record: the run was killed before it wrote that.
const UNRECORDED: &str = "unrecorded";
/// A node whose agent was stopped.
const DOWN: &str = "down";
/// A node whose agent was not changed.
const WHOLE: &str = "whole";
const NODES: [&str; 5] = [VARIANT, REDIRECTED, UNRECORDED, DOWN, WHOLE];

struct TestCluster {
    test_api: TestApi,
    agents: Agents,
    nodes: Vec<Container>,
}

impl TestCluster {
    async fn new() -> Self {
        let test_api = TestApi::start().await;
        let target = Target::find(KindTarget::Reference.name()).expect("the reference agent");
        let program = target.lab.expect("its program");
        let agents = Agents::new(KindTarget::Reference, program, test_api.folder.clone());
        let nodes: Api<Node> = Api::all(test_api.client.clone());
        for name in NODES {
            let node = typed(json!({"metadata": {"name": name}}));
            nodes.create(&PostParams::default(), &node).await.expect("a node");
        }
        Self {
            test_api,
            agents,
            nodes: NODES.map(container).into(),
        }
    }

    /// A pod of an agent, started twice.
    async fn runs(&self, app: &str, node: &str) {
        let name = format!("{app}-{node}");
        let pod = typed(json!({
            "metadata": {"name": name, "labels": {"app.kubernetes.io/name": app}},
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

    /// Records a change of an agent, as a case does.
    fn record_change(&self, node: &str, variant: Option<Variant>, way: Option<ApiEndpoint>) {
        let record = AgentRecord {
            starts: 3,
            variant,
            way,
            ..AgentRecord::default()
        };
        self.test_api.folder.set_agent(node, &record).expect("a note");
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
        let stopped = nodes.list(&all.labels(STOPPED)).await;
        [
            names(&pods.expect("pods").items),
            names(&maps.expect("maps").items),
            names(&stopped.expect("nodes").items),
        ]
    }
}

fn names<T: kube::Resource>(all: &[T]) -> Vec<String> {
    all.iter().map(kube::ResourceExt::name_any).collect()
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
    let way = ApiEndpoint {
        server: "10.96.0.1:443".parse().expect("an address"),
        further: Vec::new(),
    };
    test_cluster.runs(OTHER, VARIANT).await;
    test_cluster.record_change(VARIANT, Some(Variant::SocketLbOff), None);
    test_cluster.record_change(REDIRECTED, None, Some(way));
    let map = json!({"metadata": {"name": format!("{AGENT}-led-{REDIRECTED}")}});
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let made = maps.create(&PostParams::default(), &typed(map)).await;
    made.expect("a ConfigMap");
    test_cluster.runs(OTHER, UNRECORDED).await;
    for node in [VARIANT, REDIRECTED, UNRECORDED, DOWN] {
        label(client, node, true).await.expect("a label");
    }
    test_cluster.runs(AGENT, WHOLE).await;
    test_cluster.record_change(WHOLE, None, None);
    let [_, maps_before, stopped] = test_cluster.there().await;
    assert_eq!(stopped.len(), 4);

    let kubelets = tokio::spawn(kubelets(test_cluster.pods()));
    test_cluster
        .agents
        .reset_agents(client, &test_cluster.nodes)
        .await
        .expect("agents that begin anew");
    kubelets.abort();

    let [pods, maps, stopped] = test_cluster.there().await;
    assert_eq!(pods, [format!("{AGENT}-{WHOLE}")], "the DaemonSet's own stays");
    assert_eq!(maps.len() + 1, maps_before.len(), "{maps:?}");
    assert_eq!(
        stopped, [""; 0],
        "the DaemonSet's controller may go on everywhere"
    );
    let record = |node| test_cluster.test_api.folder.agent(node).expect("a note");
    for node in NODES {
        let record = record(node);
        assert_eq!((record.variant, record.way), (None, None), "{node}");
    }
    // The number of starts is kept, so that no later case takes one for the first.
    assert_eq!(record(VARIANT).starts, 3 + 2);
    assert_eq!(record(UNRECORDED).starts, 2);
    assert_eq!((record(REDIRECTED).starts, record(WHOLE).starts), (3, 3));
    assert_eq!(record(WHOLE).last_exit, None);
}
