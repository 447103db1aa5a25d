//! Agents are stopped and started, with an API server that grants only what `plumbline rbac` prints.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use cluster::{AgentControl as _, ApiEndpoint, Capability, RUN_LABEL, Stop, Variant, target::program};
use existing::{
    Agents, CustomAgents, InstalledAgents, KubernetesCluster, KubernetesError, Options, Own, Processes,
    give_back,
};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{ConfigMap, Node, Pod},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use nix::sys::signal::Signal;
use serde_json::json;

use super::rights::{LOOK, NODE, TEAM, typed};

/// An agent is stopped and started, and its DaemonSet is as before: with the printed permissions, and with the actions
/// of a DaemonSet controller and a kubelet.
pub(super) async fn agents_are_stopped_and_given_back(admin: &Client, options: &Options) {
    let params = PostParams::default();
    let sets: Api<DaemonSet> = Api::namespaced(admin.clone(), TEAM);
    let set = typed(json!({
        "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": {
            "metadata": {"labels": {"app": "agent"}},
            "spec": {"containers": [{"name": "agent", "image": "agent"}]},
        }},
    }));
    let before = sets.create(&params, &set).await.unwrap();
    let mut options = options.clone();
    options.tested.agents = Some(Agents {
        agent: typed(json!({
            "namespace": TEAM, "daemon-set": "agent", "container": "agent", "labels": {"app": "agent"},
        })),
        dump: None,
        differences: None,
        clean: None,
        pins: vec!["agent".to_owned()],
        pod_network: true,
    });
    let cluster = KubernetesCluster::survey(options.clone(), Own::default())
        .await
        .unwrap();
    let can = &cluster.about().description.capabilities;
    assert!(
        can.contains(&Capability::Node) && can.contains(&Capability::AgentPins),
        "{can:?}"
    );
    assert!(
        !can.contains(&Capability::PodsWithoutAgents),
        "the agents are the network of pods: {can:?}"
    );
    assert_eq!(
        cluster.cluster().agents().unwrap().pins(),
        ["agent"],
        "and no other"
    );

    let nodes: Api<Node> = Api::all(admin.clone());
    let pods: Api<Pod> = Api::namespaced(admin.clone(), TEAM);
    let label = async || nodes.get(NODE).await.unwrap().labels().get(RUN_LABEL).cloned();
    let kept_off = async {
        while label().await.as_deref() != Some(options.run.as_str()) {
            tokio::time::sleep(LOOK).await;
        }
        let now = DeleteParams::default().grace_period(0);
        pods.delete("agent", &now).await.unwrap();
    };
    let assembled = cluster.cluster();
    let agents = assembled.agents().unwrap();
    let (stopped, ()) = tokio::join!(agents.stop(NODE, Stop::Term), kept_off);
    stopped.unwrap();
    let during = sets.get("agent").await.unwrap();
    assert_eq!(during.labels()[RUN_LABEL], options.run);
    let spec = json!(during.spec);
    assert_eq!(spec["updateStrategy"], json!({"type": "OnDelete"}));
    assert!(spec["template"].to_string().contains(RUN_LABEL), "{spec}");

    let kubelet = async {
        while label().await.is_some() {
            tokio::time::sleep(LOOK).await;
        }
        let pod = typed(json!({
            "metadata": {"name": "agent", "labels": {"app": "agent"}},
            "spec": {"nodeName": NODE, "containers": [{"name": "agent", "image": "agent"}]},
        }));
        pods.create(&params, &pod).await.unwrap();
        let runs = json!({"status": {"containerStatuses": [{
            "name": "agent", "image": "agent", "imageID": "", "ready": true, "restartCount": 0,
            "containerID": "containerd://abc", "state": {"running": {}},
        }]}});
        let status = PatchParams::default();
        pods.patch_status("agent", &status, &Patch::Merge(runs))
            .await
            .unwrap();
    };
    let (started, ()) = tokio::join!(agents.start(NODE, None), kubelet);
    started.unwrap();

    // A killed run had stopped it again.
    let stopped = Patch::Merge(json!({"metadata": {"labels": {RUN_LABEL: options.run}}}));
    nodes
        .patch(NODE, &PatchParams::default(), &stopped)
        .await
        .unwrap();
    let client = options.connection.client().await.unwrap();
    let (done, ()) = tokio::join!(give_back(&client, None), controller(&sets, "agent"));
    assert_eq!(
        done.unwrap(),
        [
            "the DaemonSet team/agent is as it was",
            "the node n1 may have its agent again"
        ]
    );
    let after = sets.get("agent").await.unwrap();
    assert_eq!(after.spec, before.spec);
    assert_eq!(after.labels(), before.labels());
    assert_eq!(label().await, None);
    assert_eq!(
        give_back(&client, None).await.unwrap(),
        [""; 0],
        "it is done once"
    );
}

/// Completes the rollout of a DaemonSet that is not borrowed any more, as its controller does.
async fn controller(sets: &Api<DaemonSet>, name: &str) {
    while sets.get(name).await.unwrap().labels().contains_key(RUN_LABEL) {
        tokio::time::sleep(LOOK).await;
    }
    let seen = json!({"status": {
        "observedGeneration": 1000, "desiredNumberScheduled": 1, "currentNumberScheduled": 1,
        "updatedNumberScheduled": 1, "numberReady": 1, "numberMisscheduled": 0,
    }});
    let status = PatchParams::default();
    sets.patch_status(name, &status, &Patch::Merge(seen))
        .await
        .unwrap();
}

/// Processes of a node: each container has one, which gets these signals.
#[derive(Default)]
struct OnNode(Mutex<Vec<Signal>>);

#[async_trait]
impl Processes for OnNode {
    async fn first(&self, _: &str, _: &str, signal: Option<Signal>) -> Result<Option<u32>, KubernetesError> {
        self.0.lock().unwrap().extend(signal);
        Ok(Some(7))
    }
}

/// An agent is started in a variant and with another API endpoint, which other processes read from its objects; what
/// a killed run leaves of them is removed.
pub(super) async fn agents_are_started_in_other_configurations(admin: &Client, run: &str) {
    const CUSTOM: &str = "plumbline-custom-n1";
    let params = PostParams::default();
    let sets: Api<DaemonSet> = Api::namespaced(admin.clone(), TEAM);
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), TEAM);
    let pods: Api<Pod> = Api::namespaced(admin.clone(), TEAM);
    let set = typed(json!({
        "metadata": {"name": "configured"},
        "spec": {"selector": {"matchLabels": {"app": "configured"}}, "template": {
            "metadata": {"labels": {"app": "configured"}},
            "spec": {
                "containers": [{
                    "name": "agent", "image": "agent", "args": ["run"],
                    "volumeMounts": [{"name": "options", "mountPath": "/etc/agent"}],
                }],
                "volumes": [{"name": "options", "configMap": {"name": "options"}}],
            },
        }},
    }));
    sets.create(&params, &set).await.unwrap();
    let map = typed(json!({
        "metadata": {"name": "options"}, "data": {"agent.yaml": "server: https://10.0.0.1:6443\nlevel: 1\n"},
    }));
    maps.create(&params, &map).await.unwrap();
    let on_node = Arc::new(OnNode::default());
    let agents = || {
        let agents = Agents {
            agent: typed(json!({
                "namespace": TEAM, "daemon-set": "configured", "container": "agent", "labels": {"app": "configured"},
            })),
            dump: None,
            differences: None,
            clean: None,
            pins: Vec::new(),
            pod_network: false,
        };
        let processes = Arc::clone(&on_node) as Arc<dyn Processes>;
        InstalledAgents::new(admin.clone(), agents, run.to_owned(), Some(processes)).with_custom(
            CustomAgents {
                variants: [(Variant::SocketLbOff, vec!["--socket-lb=off".to_owned()])].into(),
                api: program::Api::default(),
                config_map: "options".to_owned(),
                key: "agent.yaml".to_owned(),
                addresses: "server".to_owned(),
            },
        )
    };
    let variant = Some(Variant::SocketLbOff);
    let endpoint = ApiEndpoint {
        server: "10.96.0.1:443".parse().unwrap(),
        further: Vec::new(),
    };
    let case = agents();
    case.set_api_endpoint(NODE, Some(&endpoint)).await.unwrap();
    let kubelet = async {
        while pods.get_opt(CUSTOM).await.unwrap().is_none() {
            tokio::time::sleep(LOOK).await;
        }
        let runs = json!({"status": {"containerStatuses": [{
            "name": "agent", "image": "agent", "imageID": "", "ready": true, "restartCount": 0,
            "containerID": "containerd://abc", "state": {"running": {}},
        }]}});
        let status = PatchParams::default();
        pods.patch_status(CUSTOM, &status, &Patch::Merge(runs))
            .await
            .unwrap();
    };
    let (started, ()) = tokio::join!(case.start(NODE, variant), kubelet);
    started.unwrap();
    let pod = pods.get(CUSTOM).await.unwrap();
    let spec = json!(pod.spec);
    assert_eq!(
        spec["containers"][0]["args"],
        json!(["run", "--socket-lb=off", "--kubeconfig=/etc/agent/kubeconfig"])
    );
    assert_eq!(
        (&spec["nodeName"], &spec["affinity"]),
        (&json!(NODE), &json!(null))
    );
    assert_ne!(pod.labels()["app"], "configured", "the DaemonSet would adopt it");
    let own = maps.get(CUSTOM).await.unwrap().data.unwrap();
    assert!(
        own["agent.yaml"].contains("level") && !own["agent.yaml"].contains("10.0.0.1"),
        "{own:?}"
    );
    assert!(own["kubeconfig"].contains("https://10.96.0.1:443"), "{own:?}");

    // As another process sees it.
    let other = agents();
    let state = other.state(NODE).await.unwrap();
    assert_eq!((state.pid, state.starts, state.ready), (Some(7), 1, Some(true)));
    assert_eq!((state.variant, state.way.as_ref()), (variant, Some(&endpoint)));
    other.start(NODE, variant).await.unwrap();
    assert_eq!(
        pods.get(CUSTOM).await.unwrap().uid(),
        pod.uid(),
        "it runs so already"
    );
    assert_eq!(
        other.unready(&[NODE.to_owned()]).await.unwrap().len(),
        1,
        "the DaemonSet's rollout"
    );

    let kubelet = async {
        while pods
            .get(CUSTOM)
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_none()
        {
            tokio::time::sleep(LOOK).await;
        }
        let now = DeleteParams::default().grace_period(0);
        pods.delete(CUSTOM, &now).await.unwrap();
    };
    let (stopped, ()) = tokio::join!(case.stop(NODE, Stop::Kill), kubelet);
    stopped.unwrap();
    assert_eq!(*on_node.0.lock().unwrap(), [Signal::SIGSTOP, Signal::SIGKILL]);
    let state = case.state(NODE).await.unwrap();
    assert_eq!((state.pid, state.starts, state.variant), (None, 1, None));
    assert_eq!(state.last_exit.as_deref(), Some("ended by SIGKILL"));
    assert_eq!(state.way, Some(endpoint), "until another one is set");

    let (done, ()) = tokio::join!(give_back(admin, Some(run)), controller(&sets, "configured"));
    assert_eq!(
        done.unwrap(),
        [
            format!("the API endpoint team/{CUSTOM} of an agent is removed"),
            "the DaemonSet team/configured is as it was".to_owned(),
            format!("the node {NODE} may have its agent again"),
        ]
    );
    assert_eq!(agents().state(NODE).await.unwrap().way, None);
    sets.delete("configured", &DeleteParams::default()).await.unwrap();
}
