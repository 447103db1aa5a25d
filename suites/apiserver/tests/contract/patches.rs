//! Patches: what each kind of them makes of an object.

use serde_json::{Value, json};

use crate::server::TestServer;

/// A service with three ports, labels and finalizers.
async fn service(server: &TestServer) {
    let service = json!({
        "metadata": {"name": "s", "labels": {"a": "1", "b": "2"}, "finalizers": ["f/a", "f/b", "f/c"]},
        "spec": {"selector": {"k": "v"}, "ports": [
            {"port": 80, "name": "a"}, {"port": 81, "name": "b", "targetPort": 9},
            {"port": 82, "name": "c", "appProtocol": "x"}]},
    });
    server.create("services", &service).await;
}

/// Ports as `name:port:target`, in order.
fn ports(service: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let list = service["spec"]["ports"].as_array().into_iter().flatten();
    list.map(|p| {
        format!(
            "{}:{}:{}",
            text(&p["name"]),
            text(&p["port"]),
            text(&p["targetPort"])
        )
    })
    .collect()
}

/// A patch that is tried on, not stored.
async fn attempt(server: &TestServer, format: &str, patch: &Value) -> (u16, Value) {
    server.patch("services", "s?dryRun=All", format, patch).await
}

#[tokio::test]
async fn strategic_merge_patches_merge_lists_by_key() {
    let server = TestServer::new().await;
    service(&server).await;
    let rows = [
        (
            json!([{"port": 81, "targetPort": 7}]),
            vec!["a:80:80", "b:81:7", "c:82:82"],
        ),
        (
            json!([{"port": 81, "$patch": "delete"}]),
            vec!["a:80:80", "c:82:82"],
        ),
        (
            json!([{"port": 83, "name": "d"}]),
            vec!["d:83:83", "a:80:80", "b:81:9", "c:82:82"],
        ),
        (
            json!([{"port": 90, "name": "z"}, {"$patch": "replace"}]),
            vec!["z:90:90"],
        ),
        (
            json!([{"port": 81, "targetPort": null}]),
            vec!["a:80:80", "b:81:81", "c:82:82"],
        ),
        (json!([]), vec!["a:80:80", "b:81:9", "c:82:82"]),
    ];
    for (list, expected) in rows {
        let patch = json!({"spec": {"ports": list}});
        let (code, patched) = attempt(&server, "strategic-merge-patch", &patch).await;
        assert_eq!(
            (code, ports(&patched)),
            (200, expected.iter().map(ToString::to_string).collect()),
            "{patch}"
        );
    }
    server
        .patch(
            "services",
            "s",
            "merge-patch",
            &json!({"metadata": {"finalizers": null}}),
        )
        .await;
    server.end().await;
}

#[tokio::test]
async fn strategic_merge_directives_do_what_they_say() {
    let server = TestServer::new().await;
    service(&server).await;
    let order = |numbers: &[i64]| numbers.iter().map(|n| json!({"port": n})).collect::<Value>();
    let spec = |patch: Value| json!({"spec": patch});
    let meta = |patch: Value| json!({"metadata": patch});
    let rows = [
        (
            spec(json!({"$setElementOrder/ports": order(&[82, 80, 81])})),
            "/spec/ports/0/port",
            json!(82),
        ),
        (
            spec(json!({"$setElementOrder/ports": order(&[80, 83, 81, 82]),
                        "ports": [{"port": 83, "name": "d"}]})),
            "/spec/ports/1/port",
            json!(83),
        ),
        (
            spec(json!({"selector": {"$patch": "replace", "q": "r"}})),
            "/spec/selector",
            json!({"q": "r"}),
        ),
        (
            spec(json!({"selector": {"$patch": "delete"}})),
            "/spec/selector",
            Value::Null,
        ),
        (
            spec(json!({"selector": {"k": null, "j": "w"}})),
            "/spec/selector",
            json!({"j": "w"}),
        ),
        (
            meta(json!({"labels": {"$retainKeys": ["a"], "a": "5"}})),
            "/metadata/labels",
            json!({"a": "5"}),
        ),
        (
            meta(json!({"$deleteFromPrimitiveList/finalizers": ["f/b", "f/q"]})),
            "/metadata/finalizers",
            json!(["f/a", "f/c"]),
        ),
        (
            meta(json!({"finalizers": ["f/a", "f/d"]})),
            "/metadata/finalizers",
            json!(["f/a", "f/d", "f/b", "f/c"]),
        ),
    ];
    for (patch, pointer, expected) in rows {
        let (code, patched) = attempt(&server, "strategic-merge-patch", &patch).await;
        let found = patched.pointer(pointer).cloned().unwrap_or_default();
        assert_eq!((code, found), (200, expected), "{patch}: {patched}");
    }
    let wrong = [
        spec(json!({"ports": [{"name": "no key"}]})),
        spec(json!({"ports": [{"port": 80, "$patch": "bogus"}]})),
        spec(json!({"selector": {"$patch": "bogus"}})),
        spec(json!({"$setElementOrder/ports": order(&[80]), "ports": [{"port": 81, "name": "b"}]})),
        meta(json!({"labels": {"$retainKeys": ["b"], "a": "5"}})),
    ];
    for patch in wrong {
        let (code, status) = attempt(&server, "strategic-merge-patch", &patch).await;
        assert!(
            code >= 400 && status["kind"] == "Status",
            "{patch}: {code} {status}"
        );
    }
    server
        .patch(
            "services",
            "s",
            "merge-patch",
            &json!({"metadata": {"finalizers": null}}),
        )
        .await;
    server.end().await;
}

#[tokio::test]
async fn conditions_merge_by_type_and_endpoints_are_replaced() {
    let server = TestServer::new().await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"automountServiceAccountToken": false,
                     "containers": [{"name": "main", "image": "probe:1"}]}});
    server.create("pods", &pod).await;
    let status = async |conditions: Value| {
        let patch = json!({"status": {"conditions": conditions}});
        server
            .patch("pods", "p/status", "strategic-merge-patch", &patch)
            .await
            .1
    };
    status(json!([{"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "True"}])).await;
    let patched = status(json!([{"type": "Ready", "status": "True"}])).await;
    let found: Vec<(&Value, &Value)> = patched["status"]["conditions"]
        .as_array()
        .expect("conditions")
        .iter()
        .map(|condition| (&condition["type"], &condition["status"]))
        .collect();
    let yes = json!("True");
    assert_eq!(found, [(&json!("Ready"), &yes), (&json!("PodScheduled"), &yes)]);
    let slice = json!({"metadata": {"name": "e"}, "addressType": "IPv4",
                       "endpoints": [{"addresses": ["10.1.1.1"]}, {"addresses": ["10.1.1.2"]}]});
    server.create("endpointslices", &slice).await;
    let patch = json!({"endpoints": [{"addresses": ["10.1.1.3"]}]});
    let (_, patched) = server
        .patch("endpointslices", "e", "strategic-merge-patch", &patch)
        .await;
    assert_eq!(
        patched["endpoints"],
        json!([{"addresses": ["10.1.1.3"], "conditions": {}}])
    );
    server.end().await;
}

#[tokio::test]
async fn json_patches_apply_whole_or_not_at_all() {
    let server = TestServer::new().await;
    service(&server).await;
    let rows = [
        (
            json!([{"op": "replace", "path": "/spec/ports/0/targetPort", "value": 7}]),
            200,
        ),
        (
            json!([{"op": "add", "path": "/metadata/labels/c~1d", "value": "e"}]),
            200,
        ),
        (
            json!([{"op": "test", "path": "/spec/type", "value": "ClusterIP"}]),
            200,
        ),
        (
            json!([{"op": "test", "path": "/spec/type", "value": "NodePort"}]),
            422,
        ),
        (json!([{"op": "remove", "path": "/spec/nothing"}]), 422),
        (
            json!([{"op": "replace", "path": "/spec/ports/0/port", "value": 0}]),
            422,
        ),
        (json!({"op": "remove"}), 400),
    ];
    for (patch, expected) in rows {
        let (code, answer) = attempt(&server, "json-patch", &patch).await;
        assert_eq!(code, expected, "{patch}: {answer}");
    }
    let half = json!([{"op": "remove", "path": "/metadata/labels"}, {"op": "remove", "path": "/nothing"}]);
    assert_eq!(server.patch("services", "s", "json-patch", &half).await.0, 422);
    let (_, found) = server
        .raw("GET", &format!("{}/s", server.path("services")), "", "")
        .await;
    assert_eq!(found["metadata"]["labels"], json!({"a": "1", "b": "2"}));
    server
        .patch(
            "services",
            "s",
            "merge-patch",
            &json!({"metadata": {"finalizers": null}}),
        )
        .await;
    server.end().await;
}

#[tokio::test]
async fn a_patch_may_name_the_version_it_was_made_for() {
    let server = TestServer::new().await;
    server
        .create(
            "services",
            &json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}),
        )
        .await;
    let stale = json!({"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}});
    let (code, status) = server.patch("services", "s", "merge-patch", &stale).await;
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
    server.end().await;
}
