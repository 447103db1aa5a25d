//! Bad requests, strangers, and how much is too much.

use serde_json::json;

use crate::server::{Own, TestServer, config};

#[tokio::test]
async fn garbage_is_refused_with_a_status() {
    let server = TestServer::new().await;
    let pods = server.path("pods");
    let one = format!("{pods}/x");
    let json = "application/json";
    let rows = [
        ("POST", pods.as_str(), json, "{", 400, "BadRequest"),
        ("POST", &pods, json, "", 400, "BadRequest"),
        ("POST", &pods, json, "[]", 400, "BadRequest"),
        ("POST", &pods, json, "\"x\"", 400, "BadRequest"),
        (
            "POST",
            &pods,
            json,
            "{\"kind\":\"Service\",\"apiVersion\":\"v1\"}",
            400,
            "BadRequest",
        ),
        (
            "POST",
            &pods,
            json,
            "{\"metadata\":{\"labels\":{\"a\":1}}}",
            400,
            "BadRequest",
        ),
        (
            "POST",
            &pods,
            json,
            "{\"metadata\":{\"name\":\"x\"}}",
            422,
            "Invalid",
        ),
        ("POST", &pods, "text/plain", "{}", 415, "UnsupportedMediaType"),
        ("PATCH", &one, "text/plain", "{}", 415, "UnsupportedMediaType"),
        (
            "PATCH",
            &one,
            "application/merge-patch+json",
            "{}",
            404,
            "NotFound",
        ),
        ("PUT", &pods, json, "{}", 405, "MethodNotAllowed"),
        ("POST", "/api/v1/pods", json, "{}", 405, "MethodNotAllowed"),
        ("GET", "/api/v1/gizmos", "", "", 404, "NotFound"),
        (
            "GET",
            "/api/v1/namespaces/default/pods/a/b/c",
            "",
            "",
            404,
            "NotFound",
        ),
        ("GET", "/apis/discovery.k8s.io/v1/gizmos", "", "", 404, "NotFound"),
        (
            "GET",
            "/api/v1/services?labelSelector=a%20b",
            "",
            "",
            400,
            "BadRequest",
        ),
        (
            "GET",
            "/api/v1/services?fieldSelector=a%3Db",
            "",
            "",
            400,
            "BadRequest",
        ),
        ("GET", "/api/v1/services?limit=x", "", "", 400, "BadRequest"),
        (
            "GET",
            "/api/v1/services?resourceVersion=x",
            "",
            "",
            400,
            "BadRequest",
        ),
        (
            "GET",
            "/api/v1/services?resourceVersionMatch=Exact",
            "",
            "",
            422,
            "Invalid",
        ),
    ];
    for (method, path, content_type, body, code, reason) in rows {
        let (found, status) = server.raw(method, path, content_type, body).await;
        assert_eq!(
            (found, &status["reason"]),
            (code, &json!(reason)),
            "{method} {path} {body}: {status}"
        );
        assert_eq!(
            (&status["kind"], &status["status"]),
            (&json!("Status"), &json!("Failure")),
            "{status}"
        );
    }
    server.end().await;
}

#[tokio::test]
async fn a_body_over_three_mebibytes_is_refused() {
    let server = TestServer::new().await;
    let huge = json!({"metadata": {"name": "x", "annotations": {"a": "x".repeat(4 << 20)}}}).to_string();
    let (code, status) = server
        .raw("POST", &server.path("pods"), "application/json", &huge)
        .await;
    assert_eq!(
        (code, &status["reason"]),
        (413, &json!("RequestEntityTooLarge")),
        "{status}"
    );
    let annotations = json!({"metadata": {"name": "x", "annotations": {"a": "x".repeat(300_000)}},
                             "spec": {"ports": [{"port": 80}]}});
    let (code, status) = server
        .raw(
            "POST",
            &server.path("services"),
            "application/json",
            &annotations.to_string(),
        )
        .await;
    assert_eq!(
        (code, &status["details"]["causes"][0]["reason"]),
        (422, &json!("FieldValueTooLong"))
    );
    server.end().await;
}

#[tokio::test]
async fn a_patch_that_copies_without_end_is_refused() {
    let server = TestServer::new().await;
    server
        .create(
            "services",
            &json!({"metadata": {"name": "x"}, "spec": {"ports": [{"port": 80}]}}),
        )
        .await;
    let mut operations = vec![json!({"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}})];
    for round in 0..40 {
        let path = format!("/metadata/annotations/c{round}");
        operations.push(json!({"op": "copy", "from": "/metadata", "path": path}));
    }
    let (code, status) = server
        .patch("services", "x", "json-patch", &operations.into())
        .await;
    assert_eq!((code, &status["kind"]), (422, &json!("Status")), "{status}");
    server.end().await;
}

#[tokio::test]
async fn strangers_get_401_and_the_anonymous_403() {
    let Some(server) = TestServer::own_only(config()).await else {
        return;
    };
    let own: &Own = server.own.as_ref().expect("our server");
    let get = async |token: &str, path: &str| {
        let client = own.client(token).await;
        let request = hyper::Request::get(path)
            .body(kube::client::Body::empty())
            .expect("a request");
        client.send(request).await.expect("an answer").status().as_u16()
    };
    assert_eq!(get(&own.token, "/api/v1/pods").await, 200);
    assert_eq!(get("wrong", "/api/v1/pods").await, 401);
    for (path, code) in [
        ("/api/v1/pods", 403),
        ("/apis", 403),
        ("/nothing", 403),
        ("/healthz", 200),
    ] {
        assert_eq!(get("", path).await, code, "{path}");
    }
    server.end().await;
}

#[tokio::test]
async fn health_version_and_discovery_answer() {
    let server = TestServer::new().await;
    for path in ["/healthz", "/readyz", "/livez"] {
        assert_eq!(
            server.raw("GET", path, "", "").await,
            (200, "ok".into()),
            "{path}"
        );
    }
    let (_, version) = server.raw("GET", "/version", "", "").await;
    assert_eq!(
        (&version["major"], &version["minor"]),
        (&json!("1"), &json!("36"))
    );
    let (_, resources) = server.raw("GET", "/api/v1", "", "").await;
    let names: Vec<&str> = resources["resources"]
        .as_array()
        .expect("resources")
        .iter()
        .filter_map(|resource| resource["name"].as_str())
        .collect();
    for name in [
        "namespaces",
        "nodes",
        "pods",
        "pods/binding",
        "pods/exec",
        "pods/log",
        "pods/proxy",
        "pods/status",
        "services",
        "services/status",
        "events",
    ] {
        assert!(names.contains(&name), "{name} is missing in {names:?}");
    }
    let (_, group) = server.raw("GET", "/apis/discovery.k8s.io", "", "").await;
    assert_eq!(group["preferredVersion"]["groupVersion"], "discovery.k8s.io/v1");
    server.end().await;
}

#[tokio::test]
async fn too_many_writes_at_once_are_put_off() {
    let mut none = config();
    none.writes = 0;
    let own = Own::start(none);
    let client = own.client(&own.token).await;
    let request = |method: &str| {
        let builder = hyper::Request::builder().method(method).uri("/api/v1/namespaces");
        builder
            .body(kube::client::Body::from(b"{}".to_vec()))
            .expect("a request")
    };
    let refused = client.send(request("POST")).await.expect("an answer");
    assert_eq!(refused.status(), 429);
    assert_eq!(
        refused
            .headers()
            .get("retry-after")
            .map(hyper::http::HeaderValue::as_bytes),
        Some(&b"1"[..])
    );
    assert_eq!(
        client.send(request("GET")).await.expect("an answer").status(),
        200,
        "reads go on"
    );
    own.stop().await.expect("an orderly end");
}

#[tokio::test]
async fn events_give_way_to_newer_ones() {
    let mut few = config();
    few.event_objects = 3;
    let Some(server) = TestServer::own_only(few).await else {
        return;
    };
    for name in ["a", "b", "c", "d", "e"] {
        let about = json!({"kind": "Pod", "name": "p", "namespace": server.namespace});
        server
            .create(
                "events",
                &json!({"metadata": {"name": name}, "involvedObject": about}),
            )
            .await;
    }
    let (_, list) = server.raw("GET", &server.path("events"), "", "").await;
    let names: Vec<_> = list["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|e| &e["metadata"]["name"])
        .collect();
    assert_eq!(names, ["c", "d", "e"]);
    server.end().await;
}
