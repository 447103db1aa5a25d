//! Graceful deletion, finalizers, preconditions, namespaces.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api,
    runtime::wait::{await_condition, conditions},
};
use serde_json::{Value, json};

use crate::{
    watching::Watching,
    world::{LIMIT, World, config},
};

fn pod(name: &str, node: Option<&str>) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 20, "containers": [{"name": "main", "image": "probe:1"}]}});
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
    }
    pod
}

async fn delete(world: &World, plural: &str, name: &str, options: &Value) -> (u16, Value) {
    let path = format!("{}/{name}", world.path(plural));
    world
        .raw("DELETE", &path, "application/json", &options.to_string())
        .await
}

async fn get(world: &World, plural: &str, name: &str) -> (u16, Value) {
    world
        .raw("GET", &format!("{}/{name}", world.path(plural)), "", "")
        .await
}

#[tokio::test]
async fn a_pod_on_a_node_stays_until_its_kubelet_forces_the_end() {
    let world = World::new().await;
    world.create("pods", &pod("held", Some("no-such-node"))).await;
    let none = json!({});
    let (code, marked) = delete(&world, "pods", "held", &none).await;
    let meta = &marked["metadata"];
    assert_eq!((code, &meta["deletionGracePeriodSeconds"]), (200, &json!(20)));
    assert_eq!(meta["generation"], 2);
    let (_, again) = delete(&world, "pods", "held", &json!({"gracePeriodSeconds": 90})).await;
    assert_eq!(again, marked, "a second deletion can't put off the end");
    let (_, hastened) = delete(&world, "pods", "held", &json!({"gracePeriodSeconds": 5})).await;
    assert_eq!(hastened["metadata"]["deletionGracePeriodSeconds"], 5);
    let ended = json!({"status": {"phase": "Succeeded"}});
    let path = format!("{}/held/status", world.path("pods"));
    let (code, _) = world
        .raw("PATCH", &path, "application/merge-patch+json", &ended.to_string())
        .await;
    assert_eq!(code, 200);
    assert_eq!(get(&world, "pods", "held").await.0, 200, "ended, and still there");
    let (_, last) = delete(&world, "pods", "held", &json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(last["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(get(&world, "pods", "held").await.0, 404);
    world.create("pods", &pod("free", None)).await;
    delete(&world, "pods", "free", &none).await;
    assert_eq!(
        get(&world, "pods", "free").await.0,
        404,
        "nobody runs it, so it is gone at once"
    );
    world.end().await;
}

#[tokio::test]
async fn a_pod_that_goes_is_written_once_more_before() {
    let world = World::new().await;
    let mut watching = Watching::of(&world, "pods", "timeoutSeconds=60").await;
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
        world.create("pods", &pod("p", node)).await;
        delete(&world, "pods", "p", &options).await;
        assert_eq!(next().await, event("ADDED", None, 1));
        assert_eq!(next().await, event("MODIFIED", Some(0), 2));
        assert_eq!(next().await, event("DELETED", Some(0), 2));
    }
    world.create("pods", &pod("p", Some("no-such-node"))).await;
    delete(&world, "pods", "p", &json!({})).await;
    delete(&world, "pods", "p", &json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(next().await, event("ADDED", None, 1));
    assert_eq!(next().await, event("MODIFIED", Some(20), 2));
    assert_eq!(next().await, event("MODIFIED", Some(0), 2));
    assert_eq!(next().await, event("DELETED", Some(0), 2));
    world.end().await;
}

#[tokio::test]
async fn finalizers_hold_up_the_end() {
    let world = World::new().await;
    let service = json!({"metadata": {"name": "s", "finalizers": ["example.com/a", "example.com/b"]},
                         "spec": {"ports": [{"port": 80}]}});
    world.create("services", &service).await;
    let (code, marked) = delete(&world, "services", "s", &json!({})).await;
    assert_eq!(
        (code, marked["metadata"]["deletionTimestamp"].is_string()),
        (200, true)
    );
    let more = json!({"metadata": {"finalizers": ["example.com/a", "example.com/c"]}});
    assert_eq!(
        world.patch("services", "s", "merge-patch", &more).await.0,
        422,
        "no new ones now"
    );
    let fewer = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}});
    let (_, left) = world
        .patch("services", "s", "strategic-merge-patch", &fewer)
        .await;
    assert_eq!(left["metadata"]["finalizers"], json!(["example.com/b"]));
    let (code, _) = world
        .patch(
            "services",
            "s",
            "merge-patch",
            &json!({"metadata": {"finalizers": null}}),
        )
        .await;
    assert_eq!((code, get(&world, "services", "s").await.0), (200, 404));
    world.end().await;
}

#[tokio::test]
async fn preconditions_and_dry_runs_keep_the_object() {
    let world = World::new().await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let created = world.create("services", &service).await;
    for wrong in [json!({"uid": "other"}), json!({"resourceVersion": "1"})] {
        let (code, status) = delete(&world, "services", "s", &json!({"preconditions": wrong})).await;
        assert_eq!((code, &status["reason"]), (409, &json!("Conflict")), "{status}");
    }
    assert_eq!(
        delete(&world, "services", "s", &json!({"dryRun": ["All"]}))
            .await
            .0,
        200
    );
    assert_eq!(
        delete(&world, "services", "s", &json!({"propagationPolicy": "X"}))
            .await
            .0,
        422
    );
    assert_eq!(get(&world, "services", "s").await.1, created);
    let right = json!({"uid": created["metadata"]["uid"]});
    assert_eq!(
        delete(&world, "services", "s", &json!({"preconditions": right}))
            .await
            .0,
        200
    );
    assert_eq!(delete(&world, "services", "s", &json!({})).await.0, 404);
    world.end().await;
}

#[tokio::test]
async fn options_in_a_body_are_the_only_ones() {
    let world = World::new().await;
    world
        .create("configmaps", &json!({"metadata": {"name": "a"}}))
        .await;
    let path = format!("{}/a", world.path("configmaps"));
    let (code, answer) = world
        .raw("DELETE", &format!("{path}?dryRun=All"), "application/json", "{}")
        .await;
    assert_eq!((code, &answer["kind"]), (200, &json!("Status")), "{answer}");
    assert_eq!(get(&world, "configmaps", "a").await.0, 404, "it was no dry run");
    world.end().await;
}

#[tokio::test]
async fn dependents_are_deleted_in_the_background_only() {
    let Some(world) = World::own_only(config()).await else {
        return;
    };
    world
        .create("configmaps", &json!({"metadata": {"name": "a"}}))
        .await;
    for (options, field) in [
        (json!({"propagationPolicy": "Foreground"}), "propagationPolicy"),
        (json!({"propagationPolicy": "Orphan"}), "propagationPolicy"),
        (json!({"orphanDependents": true}), "orphanDependents"),
    ] {
        let (code, status) = delete(&world, "configmaps", "a", &options).await;
        assert_eq!(
            (code, &status["details"]["causes"][0]["field"]),
            (422, &json!(field)),
            "{status}"
        );
    }
    let background = json!({"propagationPolicy": "Background", "orphanDependents": false});
    assert_eq!(delete(&world, "configmaps", "a", &background).await.0, 200);
    world.end().await;
}

#[tokio::test]
async fn deleting_a_collection_deletes_what_is_selected() {
    let world = World::new().await;
    for (name, app) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let slice = json!({"metadata": {"name": name, "labels": {"app": app}}, "addressType": "IPv4"});
        world.create("endpointslices", &slice).await;
    }
    let path = world.path("endpointslices");
    let (code, _) = world
        .raw("DELETE", &format!("{path}?labelSelector=app%3Dx"), "", "")
        .await;
    let (_, rest) = world.raw("GET", &path, "", "").await;
    assert_eq!((code, rest["items"].as_array().map(Vec::len)), (200, Some(1)));
    assert_eq!(rest["items"][0]["metadata"]["name"], "c");
    world.end().await;
}

#[tokio::test]
async fn a_namespace_ends_with_all_that_is_in_it() {
    let world = World::new().await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    world.create("services", &service).await;
    world
        .create(
            "endpointslices",
            &json!({"metadata": {"name": "e"}, "addressType": "IPv4"}),
        )
        .await;
    world.create("pods", &pod("held", Some("no-such-node"))).await;
    let path = format!("/api/v1/namespaces/{}", world.namespace);
    let (code, marked) = world.raw("DELETE", &path, "", "").await;
    assert_eq!((code, &marked["status"]["phase"]), (200, &json!("Terminating")));
    let refused = world
        .raw(
            "POST",
            &world.path("services"),
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
    // The pod's kubelet would do this; nobody else ends a namespace while a pod is in it.
    let api = world.api::<Pod>();
    let marked = await_condition(api, "held", |pod: Option<&Pod>| {
        pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some())
    });
    tokio::time::timeout(LIMIT, marked)
        .await
        .expect("in time")
        .expect("a watch");
    assert_eq!(world.raw("GET", &path, "", "").await.0, 200);
    delete(&world, "pods", "held", &json!({"gracePeriodSeconds": 0})).await;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let uid = marked_uid(&world, &path).await;
    if let Some(uid) = uid {
        let gone = await_condition(namespaces, &world.namespace, conditions::is_deleted(&uid));
        tokio::time::timeout(LIMIT, gone)
            .await
            .expect("in time")
            .expect("a watch");
    }
    assert_eq!(world.raw("GET", &path, "", "").await.0, 404);
    assert_eq!(get(&world, "services", "s").await.0, 404);
    let (code, status) = world.raw("DELETE", "/api/v1/namespaces/default", "", "").await;
    assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")));
}

/// The namespace's uid while it is there.
async fn marked_uid(world: &World, path: &str) -> Option<String> {
    let (code, namespace) = world.raw("GET", path, "", "").await;
    (code == 200).then(|| {
        namespace["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    })
}
