//! `kubectl apply`: three-way patches between a manifest, the last one, and the object.

use serde_json::json;

use crate::{
    kubectl::{Kubectl, service},
    server::TestServer,
};

#[tokio::test]
async fn apply_creates_changes_and_leaves_alone() {
    let server = TestServer::new().await;
    let Some(kubectl) = Kubectl::new(&server) else {
        return;
    };
    let first = service(
        "web",
        &json!([{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]),
    );
    let apply = ["apply", "-f", "-"];
    assert_eq!(
        kubectl.with_input(&apply, &first).await.ok(),
        "service/web created\n"
    );
    assert_eq!(
        kubectl.with_input(&apply, &first).await.ok(),
        "service/web unchanged\n"
    );
    // Another manager's port and label survive, because no manifest had them.
    let foreign =
        json!({"metadata": {"labels": {"other": "x"}}, "spec": {"ports": [{"port": 90, "name": "z"}]}});
    kubectl
        .run(&["patch", "svc", "web", "-p", &foreign.to_string()])
        .await
        .ok();
    let second = service(
        "web",
        &json!([{"port": 82, "name": "c"}, {"port": 80, "name": "a", "targetPort": 5}]),
    );
    assert_eq!(
        kubectl.with_input(&apply, &second).await.ok(),
        "service/web configured\n"
    );
    let found = kubectl.json(&["get", "svc", "web"]).await;
    // Where a foreign element stands among the others is not promised: upstream's answer depends on whether a
    // list was changed in place.
    let ports = found["spec"]["ports"].as_array().expect("ports");
    let mut numbers: Vec<i64> = ports.iter().filter_map(|port| port["port"].as_i64()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [80, 82, 90]);
    let changed = ports
        .iter()
        .find(|port| port["port"] == 80)
        .expect("the port that stayed");
    assert_eq!(
        (&changed["targetPort"], &changed["name"]),
        (&json!(5), &json!("a"))
    );
    assert_eq!(found["metadata"]["labels"], json!({"other": "x"}));
    server.end().await;
}

#[tokio::test]
async fn apply_empties_and_refills_a_slice() {
    let server = TestServer::new().await;
    let Some(kubectl) = Kubectl::new(&server) else {
        return;
    };
    let slice = |endpoints| {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
               "metadata": {"name": "web", "labels": {"kubernetes.io/service-name": "web"}},
               "addressType": "IPv4", "endpoints": endpoints, "ports": [{"port": 80}]})
        .to_string()
    };
    let full = slice(json!([{"addresses": ["10.1.1.1"]}]));
    kubectl.with_input(&["apply", "-f", "-"], &full).await.ok();
    kubectl
        .with_input(&["apply", "-f", "-"], &slice(json!([])))
        .await
        .ok();
    let found = kubectl.json(&["get", "endpointslice", "web"]).await;
    assert_eq!(
        (&found["endpoints"], &found["metadata"]["generation"]),
        (&json!(null), &json!(2))
    );
    kubectl.with_input(&["apply", "-f", "-"], &full).await.ok();
    let found = kubectl.json(&["get", "endpointslice", "web"]).await;
    assert_eq!(
        found["endpoints"],
        json!([{"addresses": ["10.1.1.1"], "conditions": {}}])
    );
    server.end().await;
}

#[tokio::test]
async fn apply_refuses_fields_that_do_not_exist() {
    let server = TestServer::new().await;
    let Some(kubectl) = Kubectl::new(&server) else {
        return;
    };
    let wrong = service("web", &json!([{"port": 80, "prot": "TCP"}]));
    for verb in ["apply", "create"] {
        let refused = kubectl.with_input(&[verb, "-f", "-"], &wrong).await;
        assert!(
            refused.err.contains("unknown field \"spec.ports[0].prot\""),
            "{refused:?}"
        );
    }
    let warned = kubectl
        .with_input(&["apply", "--validate=warn", "-f", "-"], &wrong)
        .await;
    assert!(
        warned.success && warned.err.contains("unknown field \"spec.ports[0].prot\""),
        "{warned:?}"
    );
    let manifest = service("dry", &json!([{"port": 1}]));
    let dry = kubectl
        .with_input(&["apply", "--dry-run=server", "-f", "-"], &manifest)
        .await;
    assert_eq!(dry.ok(), "service/dry created (server dry run)\n");
    assert!(
        !kubectl.run(&["get", "svc", "dry"]).await.success,
        "a dry run stores nothing"
    );
    server.end().await;
}
