//! Graceful deletion, finalizers, preconditions, namespaces.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api,
    runtime::wait::{await_condition, conditions},
};
use serde_json::{Value, json};

use crate::{
    server::{LIMIT, TestServer, config},
    watching::Watching,
};

fn pod(name: &str, node: Option<&str>) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 20, "containers": [{"name": "main", "image": "probe:1"}]}});
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
    }
    pod
}

async fn delete(server: &TestServer, plural: &str, name: &str, options: &Value) -> (u16, Value) {
    let path = format!("{}/{name}", server.path(plural));
    server
        .raw("DELETE", &path, "application/json", &options.to_string())
        .await
}

async fn get(server: &TestServer, plural: &str, name: &str) -> (u16, Value) {
    server
        .raw("GET", &format!("{}/{name}", server.path(plural)), "", "")
        .await
}

#[tokio::test]
async fn a_pod_on_a_node_stays_until_its_kubelet_forces_the_end() {
    let server = TestServer::new().await;
    server.create("pods", &pod("held", Some("no-such-node"))).await;
    let none = json!({});
    let (code, marked) = delete(&server, "pods", "held", &none).await;
    let meta = &marked["metadata"];
    assert_eq!((code, &meta["deletionGracePeriodSeconds"]), (200, &json!(20)));
    assert_eq!(meta["generation"], 2);
    let (_, again) = delete(&server, "pods", "held", &json!({"gracePeriodSeconds": 90})).await;
    assert_eq!(again, marked, "a second deletion can't put off the end");
    let (_, hastened) = delete(&server, "pods", "held", &json!({"gracePeriodSeconds": 5})).await;
    assert_eq!(hastened["metadata"]["deletionGracePeriodSeconds"], 5);
    let ended = json!({"status": {"phase": "Succeeded"}});
    let path = format!("{}/held/status", server.path("pods"));
    let (code, _) = server
        .raw("PATCH", &path, "application/merge-patch+json", &ended.to_string())
        .await;
    assert_eq!(code, 200);
    assert_eq!(
        get(&server, "pods", "held").await.0,
        200,
        "ended, and still there"
    );
    let (_, last) = delete(&server, "pods", "held", &json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(last["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(get(&server, "pods", "held").await.0, 404);
    server.create("pods", &pod("free", None)).await;
    delete(&server, "pods", "free", &none).await;
    assert_eq!(
        get(&server, "pods", "free").await.0,
        404,
        "no node runs it, so it is removed at once"
    );
    server.end().await;
}

#[tokio::test]
async fn a_pod_that_goes_is_written_once_more_before() {
    let server = TestServer::new().await;
    let mut watching = Watching::of(&server, "pods", "timeoutSeconds=60").await;
    let mut next = async || {
        let event = watching.next().await.expect("an event");
        let meta = &event["object"]["metadata"];
        (
            event["type"].as_str().expect("a type").to_owned(),
            meta["deletionGracePeriodSeconds"].as_i64(),
            meta["generation"].as_i64(),
        )
    };
    let event = |kind: &str, grace, generation| (kind.to_owned(), grace, Some(generation));
    for (node, options) in [
        (None, json!({})),
        (Some("no-such-node"), json!({"gracePeriodSeconds": 0})),
    ] {
        server.create("pods", &pod("p", node)).await;
        delete(&server, "pods", "p", &options).await;
        assert_eq!(next().await, event("ADDED", None, 1));
        assert_eq!(next().await, event("MODIFIED", Some(0), 2));
        assert_eq!(next().await, event("DELETED", Some(0), 2));
    }
    server.create("pods", &pod("p", Some("no-such-node"))).await;
    delete(&server, "pods", "p", &json!({})).await;
    delete(&server, "pods", "p", &json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(next().await, event("ADDED", None, 1));
    assert_eq!(next().await, event("MODIFIED", Some(20), 2));
    assert_eq!(next().await, event("MODIFIED", Some(0), 2));
    assert_eq!(next().await, event("DELETED", Some(0), 2));
    server.end().await;
}

#[tokio::test]
async fn finalizers_hold_up_the_end() {
    let server = TestServer::new().await;
    let service = json!({"metadata": {"name": "s", "finalizers": ["example.com/a", "example.com/b"]},
                         "spec": {"ports": [{"port": 80}]}});
    server.create("services", &service).await;
    let (code, marked) = delete(&server, "services", "s", &json!({})).await;
    assert_eq!(
        (code, marked["metadata"]["deletionTimestamp"].is_string()),
        (200, true)
    );
    let more = json!({"metadata": {"finalizers": ["example.com/a", "example.com/c"]}});
    assert_eq!(
        server.patch("services", "s", "merge-patch", &more).await.0,
        422,
        "no new ones now"
    );
    let fewer = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}});
    let (_, left) = server
        .patch("services", "s", "strategic-merge-patch", &fewer)
        .await;
    assert_eq!(left["metadata"]["finalizers"], json!(["example.com/b"]));
    let (code, _) = server
        .patch(
            "services",
            "s",
            "merge-patch",
            &json!({"metadata": {"finalizers": null}}),
        )
        .await;
    assert_eq!((code, get(&server, "services", "s").await.0), (200, 404));
    server.end().await;
}

#[tokio::test]
async fn preconditions_and_dry_runs_keep_the_object() {
    let server = TestServer::new().await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let created = server.create("services", &service).await;
    for wrong in [json!({"uid": "other"}), json!({"resourceVersion": "1"})] {
        let (code, status) = delete(&server, "services", "s", &json!({"preconditions": wrong})).await;
        assert_eq!((code, &status["reason"]), (409, &json!("Conflict")), "{status}");
    }
    assert_eq!(
        delete(&server, "services", "s", &json!({"dryRun": ["All"]}))
            .await
            .0,
        200
    );
    assert_eq!(
        delete(&server, "services", "s", &json!({"propagationPolicy": "X"}))
            .await
            .0,
        422
    );
    assert_eq!(get(&server, "services", "s").await.1, created);
    let right = json!({"uid": created["metadata"]["uid"]});
    assert_eq!(
        delete(&server, "services", "s", &json!({"preconditions": right}))
            .await
            .0,
        200
    );
    assert_eq!(delete(&server, "services", "s", &json!({})).await.0, 404);
    server.end().await;
}

#[tokio::test]
async fn options_in_a_body_are_the_only_ones() {
    let server = TestServer::new().await;
    server
        .create("configmaps", &json!({"metadata": {"name": "a"}}))
        .await;
    let path = format!("{}/a", server.path("configmaps"));
    let (code, answer) = server
        .raw("DELETE", &format!("{path}?dryRun=All"), "application/json", "{}")
        .await;
    assert_eq!((code, &answer["kind"]), (200, &json!("Status")), "{answer}");
    assert_eq!(get(&server, "configmaps", "a").await.0, 404, "it was no dry run");
    server.end().await;
}

#[tokio::test]
async fn dependents_are_deleted_in_the_background_only() {
    let Some(server) = TestServer::own_only(config()).await else {
        return;
    };
    server
        .create("configmaps", &json!({"metadata": {"name": "a"}}))
        .await;
    for (options, field) in [
        (json!({"propagationPolicy": "Foreground"}), "propagationPolicy"),
        (json!({"propagationPolicy": "Orphan"}), "propagationPolicy"),
        (json!({"orphanDependents": true}), "orphanDependents"),
    ] {
        let (code, status) = delete(&server, "configmaps", "a", &options).await;
        assert_eq!(
            (code, &status["details"]["causes"][0]["field"]),
            (422, &json!(field)),
            "{status}"
        );
    }
    let background = json!({"propagationPolicy": "Background", "orphanDependents": false});
    assert_eq!(delete(&server, "configmaps", "a", &background).await.0, 200);
    server.end().await;
}

#[tokio::test]
async fn deleting_a_collection_deletes_what_is_selected() {
    let server = TestServer::new().await;
    for (name, app) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let slice = json!({"metadata": {"name": name, "labels": {"app": app}}, "addressType": "IPv4"});
        server.create("endpointslices", &slice).await;
    }
    let path = server.path("endpointslices");
    let (code, _) = server
        .raw("DELETE", &format!("{path}?labelSelector=app%3Dx"), "", "")
        .await;
    let (_, rest) = server.raw("GET", &path, "", "").await;
    assert_eq!((code, rest["items"].as_array().map(Vec::len)), (200, Some(1)));
    assert_eq!(rest["items"][0]["metadata"]["name"], "c");
    server.end().await;
}

#[tokio::test]
async fn a_namespace_ends_with_all_that_is_in_it() {
    let server = TestServer::new().await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    server.create("services", &service).await;
    server
        .create(
            "endpointslices",
            &json!({"metadata": {"name": "e"}, "addressType": "IPv4"}),
        )
        .await;
    server.create("pods", &pod("held", Some("no-such-node"))).await;
    let path = format!("/api/v1/namespaces/{}", server.namespace);
    let (code, marked) = server.raw("DELETE", &path, "", "").await;
    assert_eq!((code, &marked["status"]["phase"]), (200, &json!("Terminating")));
    let refused = server
        .raw(
            "POST",
            &server.path("services"),
            "application/json",
            &service.to_string(),
        )
        .await;
    assert_eq!(
        (refused.0, &refused.1["reason"]),
        (403, &json!("Forbidden")),
        "{}",
        refused.1
    );
    // The pod's kubelet would do this; a namespace does not end while a pod is in it.
    let api = server.api::<Pod>();
    let marked = await_condition(api, "held", |pod: Option<&Pod>| {
        pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some())
    });
    tokio::time::timeout(LIMIT, marked)
        .await
        .expect("in time")
        .expect("a watch");
    assert_eq!(server.raw("GET", &path, "", "").await.0, 200);
    delete(&server, "pods", "held", &json!({"gracePeriodSeconds": 0})).await;
    let namespaces: Api<Namespace> = Api::all(server.client.clone());
    let uid = marked_uid(&server, &path).await;
    if let Some(uid) = uid {
        let gone = await_condition(namespaces, &server.namespace, conditions::is_deleted(&uid));
        tokio::time::timeout(LIMIT, gone)
            .await
            .expect("in time")
            .expect("a watch");
    }
    assert_eq!(server.raw("GET", &path, "", "").await.0, 404);
    assert_eq!(get(&server, "services", "s").await.0, 404);
    let (code, status) = server.raw("DELETE", "/api/v1/namespaces/default", "", "").await;
    assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")));
}

/// The namespace's uid while it is there.
async fn marked_uid(server: &TestServer, path: &str) -> Option<String> {
    let (code, namespace) = server.raw("GET", path, "", "").await;
    (code == 200).then(|| {
        namespace["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    })
}
