//! Hints by the CPU of zones.

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use lab_controllers::{SliceSettings, keep_slices};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::server::{TestServer, object};

/// Nodes that are ready and say what they have, each in a zone of its own; no other test has them.
const NODES: [(&str, &str); 2] = [("topology-a", "a"), ("topology-b", "b")];
const AUTO: &str = "service.kubernetes.io/topology-mode";

async fn nodes_with_cpu(server: &TestServer) -> Api<Node> {
    let api: Api<Node> = Api::all(server.client.clone());
    let ready = json!({"type": "Ready", "status": "True", "reason": "Test", "message": ""});
    let status =
        json!({"status": {"allocatable": {"cpu": "2"}, "capacity": {"cpu": "2"}, "conditions": [ready]}});
    for (name, zone) in NODES {
        let node = json!({"metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}}});
        api.create(&PostParams::default(), &object(node))
            .await
            .expect("a node");
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await
            .expect("a status");
    }
    api
}

#[tokio::test]
async fn zones_get_hints_by_their_cpu_where_every_zone_has_enough_endpoints() {
    let server = TestServer::any().await;
    let stop = CancellationToken::new();
    let running = server.own.as_ref().map(|own| {
        let client = own.controller.clone();
        tokio::spawn(keep_slices(client, SliceSettings::default(), stop.clone()))
    });
    let nodes = nodes_with_cpu(&server).await;
    let ports = json!([{"name": "main", "port": 80}]);
    server
        .service("web", json!({"selector": {"app": "web"}, "ports": ports}))
        .await;
    let annotate = async |value: Value| {
        let patch = json!({"metadata": {"annotations": {AUTO: value}}});
        server.patch_service("web", patch).await;
    };
    annotate("Auto".into()).await;
    for (pod, node, address) in [
        ("p1", "topology-a", "10.1.0.1"),
        ("p2", "topology-a", "10.1.0.2"),
        ("p3", "topology-b", "10.1.0.3"),
    ] {
        server.pod(pod, node, address, true, json!([])).await;
    }
    // Three for two zones of one size: one would get a third more than its even share.
    let none = ["main=80: 10.1.0.1, 10.1.0.2, 10.1.0.3"];
    server.slices("web", &none).await;
    server.pod("p4", "topology-b", "10.1.0.4", true, json!([])).await;
    let both = ["main=80: 10.1.0.1 for:a, 10.1.0.2 for:a, 10.1.0.3 for:b, 10.1.0.4 for:b"];
    server.slices("web", &both).await;
    server.ready("p4", false).await;
    let none = ["main=80: 10.1.0.1, 10.1.0.2, 10.1.0.3, 10.1.0.4 !ready !serving"];
    server.slices("web", &none).await;
    // The annotation comes before the field: there are no hints still.
    let distribution = json!({"spec": {"trafficDistribution": "PreferSameZone"}});
    server.patch_service("web", distribution).await;
    server.ready("p4", true).await;
    server.slices("web", &both).await;
    server.delete_pod("p4", true).await;
    let none = ["main=80: 10.1.0.1, 10.1.0.2, 10.1.0.3"];
    server.slices("web", &none).await;
    annotate(Value::Null).await;
    let by_zone = ["main=80: 10.1.0.1 for:a, 10.1.0.2 for:a, 10.1.0.3 for:b"];
    server.slices("web", &by_zone).await;
    for (name, _) in NODES {
        nodes
            .delete(name, &DeleteParams::default())
            .await
            .expect("deleted");
    }
    stop.cancel();
    if let Some(running) = running {
        running.await.expect("an orderly end");
    }
    server.end().await;
}
