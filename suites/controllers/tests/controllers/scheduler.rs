//! Pods get nodes.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, api::PostParams, runtime::watcher};
use lab_controllers::schedule;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::server::{TestServer, object, until};

async fn pod(server: &TestServer, name: &str, selector: serde_json::Value) {
    let spec = json!({"containers": [{"name": "c", "image": "i"}], "nodeSelector": selector});
    let pod = object(json!({"metadata": {"name": name}, "spec": spec}));
    let api: Api<Pod> = server.api();
    api.create(&PostParams::default(), &pod).await.expect("a pod");
}

fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())
}

#[tokio::test]
async fn pods_are_bound_in_turn_and_one_that_no_node_takes_waits_for_one() {
    let server = TestServer::own().await;
    let own = server.own.as_ref().expect("our server");
    let stop = CancellationToken::new();
    let running = tokio::spawn(schedule(own.controller.clone(), stop.clone()));
    server.nodes(&[("node1", "a"), ("node2", "b")]).await;
    let nodes: Api<Node> = Api::all(server.client.clone());
    // A new node is tainted until its kubelet says that it is ready, as upstream's admission has it.
    for name in ["node1", "node2"] {
        let patch = kube::api::Patch::Merge(json!({"spec": {"taints": null}}));
        nodes
            .patch(name, &kube::api::PatchParams::default(), &patch)
            .await
            .expect("patched");
    }
    pod(&server, "picky", json!({"disk": "fast"})).await;
    for name in ["p1", "p2", "p3", "p4"] {
        pod(&server, name, json!({})).await;
    }
    let bound = |all: &[Pod], expected: usize| {
        let on = |name: &str| all.iter().filter(|pod| node(pod) == Some(name)).count();
        let found = (on("node1"), on("node2"));
        if found.0 + found.1 == expected {
            Ok(found)
        } else {
            Err(format!("{found:?} pods on the nodes"))
        }
    };
    let all = until(server.api(), watcher::Config::default(), |all| {
        bound(all, 4).map(drop)
    })
    .await;
    assert_eq!(bound(&all, 4), Ok((2, 2)));
    let fast = object::<Node>(json!({"metadata": {"name": "node3", "labels": {"disk": "fast"}}}));
    nodes.create(&PostParams::default(), &fast).await.expect("a node");
    let patch = kube::api::Patch::Merge(json!({"spec": {"taints": null}}));
    nodes
        .patch("node3", &kube::api::PatchParams::default(), &patch)
        .await
        .expect("patched");
    let picky = watcher::Config::default().fields("metadata.name=picky");
    until(server.api(), picky, |all: &[Pod]| match all {
        [pod] if node(pod) == Some("node3") => Ok(()),
        other => Err(format!("{:?}", other.iter().map(node).collect::<Vec<_>>())),
    })
    .await;
    stop.cancel();
    running.await.expect("an orderly end");
    server.end().await;
}
