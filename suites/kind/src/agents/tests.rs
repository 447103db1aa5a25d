//! A cluster that is used again, whose last run was killed.

use cluster::target::Target;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::*;
use crate::{
    manifests::STOPPED,
    served::{Served, typed},
    state::AgentRecord,
};

/// Its agent is in another configuration, of which a note was made.
const VARIANT: &str = "variant";
/// Its agent was led to the API by another way, and is stopped.
const LED: &str = "led";
/// Its agent is a pod of ours, and the run was killed before it noted that.
const UNNOTED: &str = "unnoted";
/// Its agent was stopped.
const DOWN: &str = "down";
/// Nothing was done to its agent.
const WHOLE: &str = "whole";
const NODES: [&str; 5] = [VARIANT, LED, UNNOTED, DOWN, WHOLE];

struct World {
    served: Served,
    agents: Agents,
    nodes: Vec<Container>,
}

impl World {
    async fn new() -> Self {
        let served = Served::start().await;
        let target = Target::find(KindTarget::Reference.name()).expect("the reference agent");
        let program = target.lab.expect("its program");
        let agents = Agents::new(KindTarget::Reference, program, served.folder.clone());
        let nodes: Api<Node> = Api::all(served.client.clone());
        for name in NODES {
            let node = typed(json!({"metadata": {"name": name}}));
            nodes.create(&PostParams::default(), &node).await.expect("a node");
        }
        Self {
            served,
            agents,
            nodes: NODES.map(container).into(),
        }
    }

    /// A pod that an agent runs in, which was started twice.
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

    /// What a case has noted of an agent.
    fn noted(&self, node: &str, variant: Option<Variant>, way: Option<ApiEndpoint>) {
        let record = AgentRecord {
            starts: 3,
            variant,
            way,
            ..AgentRecord::default()
        };
        self.served.folder.set_agent(node, &record).expect("a note");
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.served.client.clone(), NAMESPACE)
    }

    /// Names of pods and of ConfigMaps, and nodes whose agents are stopped.
    async fn there(&self) -> [Vec<String>; 3] {
        let client = &self.served.client;
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

/// As kubelets do: pods that are to go are gone.
async fn kubelets(pods: Api<Pod>) {
    let now = DeleteParams::default().grace_period(0);
    loop {
        for pod in pods.list(&ListParams::default()).await.expect("pods") {
            if pod.metadata.deletion_timestamp.is_some() {
                // It may have gone meanwhile.
                let _ = pods.delete(&pod.name_any(), &now).await;
            }
        }
        sleep(LIMITS.look).await;
    }
}

#[tokio::test]
async fn the_agents_of_a_cluster_that_is_used_again_begin_anew_whatever_a_killed_run_had_done_to_them() {
    let world = World::new().await;
    let client = &world.served.client;
    let way = ApiEndpoint {
        server: "10.96.0.1:443".parse().expect("an address"),
        further: Vec::new(),
    };
    world.runs(OTHER, VARIANT).await;
    world.noted(VARIANT, Some(Variant::SocketLbOff), None);
    world.noted(LED, None, Some(way));
    let map = json!({"metadata": {"name": format!("{AGENT}-led-{LED}")}});
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let made = maps.create(&PostParams::default(), &typed(map)).await;
    made.expect("a ConfigMap");
    world.runs(OTHER, UNNOTED).await;
    for node in [VARIANT, LED, UNNOTED, DOWN] {
        label(client, node, true).await.expect("a label");
    }
    world.runs(AGENT, WHOLE).await;
    world.noted(WHOLE, None, None);
    let [_, maps_before, stopped] = world.there().await;
    assert_eq!(stopped.len(), 4);

    let kubelets = tokio::spawn(kubelets(world.pods()));
    world
        .agents
        .reset_agents(client, &world.nodes)
        .await
        .expect("agents that begin anew");
    kubelets.abort();

    let [pods, maps, stopped] = world.there().await;
    assert_eq!(pods, [format!("{AGENT}-{WHOLE}")], "the DaemonSet's own stays");
    assert_eq!(maps.len() + 1, maps_before.len(), "{maps:?}");
    assert_eq!(
        stopped, [""; 0],
        "the DaemonSet's controller may go on everywhere"
    );
    let record = |node| world.served.folder.agent(node).expect("a note");
    for node in NODES {
        let record = record(node);
        assert_eq!((record.variant, record.way), (None, None), "{node}");
    }
    // Starts are counted on: no later case takes one for the first.
    assert_eq!(record(VARIANT).starts, 3 + 2);
    assert_eq!(record(UNNOTED).starts, 2);
    assert_eq!((record(LED).starts, record(WHOLE).starts), (3, 3));
    assert_eq!(record(WHOLE).last_exit, None);
}
