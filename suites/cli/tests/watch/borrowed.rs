//! Agents are stopped and started, with an API server that grants only what `plumbline rbac` prints.

use cluster::{Capability, RUN_LABEL, Stop};
use existing::{Agents, KubernetesCluster, Options, Own, give_back};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Node, Pod},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
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
    let controller = async {
        while label().await.as_deref() != Some(options.run.as_str()) {
            tokio::time::sleep(LOOK).await;
        }
        let now = DeleteParams::default().grace_period(0);
        pods.delete("agent", &now).await.unwrap();
    };
    let assembled = cluster.cluster();
    let agents = assembled.agents().unwrap();
    let (stopped, ()) = tokio::join!(agents.stop(NODE, Stop::Term), controller);
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
    let controller = async {
        while sets.get("agent").await.unwrap().labels().contains_key(RUN_LABEL) {
            tokio::time::sleep(LOOK).await;
        }
        let seen = json!({"status": {
            "observedGeneration": 1000, "desiredNumberScheduled": 1, "currentNumberScheduled": 1,
            "updatedNumberScheduled": 1, "numberReady": 1, "numberMisscheduled": 0,
        }});
        let status = PatchParams::default();
        sets.patch_status("agent", &status, &Patch::Merge(seen))
            .await
            .unwrap();
    };
    let client = options.connection.client().await.unwrap();
    let (done, ()) = tokio::join!(give_back(&client, None), controller);
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
