//! Server-side apply: what it changes, what it refuses, whose the fields are.

use serde_json::{Value, json};

use crate::{
    kubectl::Kubectl,
    owning::{owned, owners},
    server::TestServer,
};

const APPLY: &str = "application/apply-patch+yaml";

/// Applies a configuration of the object `x`; code and answer.
pub(crate) async fn apply(server: &TestServer, plural: &str, query: &str, mut config: Value) -> (u16, Value) {
    let (kind, version) = match plural {
        "services" => ("Service", "v1"),
        "configmaps" => ("ConfigMap", "v1"),
        "pods" => ("Pod", "v1"),
        "endpointslices" => ("EndpointSlice", "discovery.k8s.io/v1"),
        other => panic!("no test applies {other}"),
    };
    config["kind"] = kind.into();
    config["apiVersion"] = version.into();
    config["metadata"]["name"] = "x".into();
    server
        .raw(
            "PATCH",
            &format!("{}/x?{query}", server.path(plural)),
            APPLY,
            &config.to_string(),
        )
        .await
}

#[tokio::test]
async fn two_managers_share_a_service_and_meet_in_conflicts() {
    let server = TestServer::new().await;
    let (tcp, udp) = (
        "k:{\"port\":80,\"protocol\":\"TCP\"}",
        "k:{\"port\":81,\"protocol\":\"UDP\"}",
    );
    let first = json!({"metadata": {"labels": {"x": "y"}}, "spec": {"selector": {"app": "web"}, "ports": [
        {"name": "a", "port": 80}, {"name": "b", "port": 81, "protocol": "UDP", "targetPort": "http"}]}});
    let (code, created) = apply(&server, "services", "fieldManager=a", first.clone()).await;
    assert_eq!(code, 201, "{created}");
    let udp_item = json!({".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {}});
    let fields = json!({"f:metadata": {"f:labels": {"f:x": {}}}, "f:spec": {"f:selector": {}, "f:ports": {
        tcp: {".": {}, "f:name": {}, "f:port": {}}, udp: udp_item}}});
    assert_eq!(owners(&created), owned(&[("a Apply", fields)]));
    let (code, again) = apply(&server, "services", "fieldManager=a", first).await;
    assert_eq!((code, &again), (200, &created), "nothing to do is no write");

    let second = json!({"metadata": {"labels": {"x": "z"}}, "spec": {"selector": {"app": "web"},
        "ports": [{"port": 80, "protocol": "TCP", "name": "c"}]}});
    let (code, status) = apply(&server, "services", "fieldManager=b", second.clone()).await;
    let message = "Apply failed with 2 conflicts: conflicts with \"a\":\n- .metadata.labels.x\n- \
                   .spec.ports[port=80,protocol=\"TCP\"].name";
    assert_eq!(
        (code, &status["reason"], &status["message"]),
        (409, &json!("Conflict"), &json!(message))
    );
    let cause = |field: &str| json!({"reason": "FieldManagerConflict", "message": "conflict with \"a\"", "field": field});
    let causes = json!([
        cause(".metadata.labels.x"),
        cause(".spec.ports[port=80,protocol=\"TCP\"].name")
    ]);
    assert_eq!(status["details"]["causes"], causes);

    let (code, forced) = apply(&server, "services", "fieldManager=b&force=true", second).await;
    assert_eq!((code, &forced["spec"]["ports"][0]["name"]), (200, &json!("c")));
    let of_b = json!({"f:metadata": {"f:labels": {"f:x": {}}}, "f:spec": {"f:selector": {}, "f:ports": {
        tcp: {".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}}}}});
    let of_a = json!({"f:spec": {"f:selector": {}, "f:ports": {
        tcp: {".": {}, "f:port": {}}, udp: {".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {}}}}});
    assert_eq!(owners(&forced), owned(&[("a Apply", of_a), ("b Apply", of_b)]));

    // The other port is removed: its manager no longer applies it, and no other owns it.
    let less = json!({"spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    let (code, left) = apply(&server, "services", "fieldManager=a", less).await;
    assert_eq!(
        (code, left["spec"]["ports"].as_array().map(Vec::len)),
        (200, Some(1))
    );
    assert_eq!(
        (
            &left["spec"]["ports"][0]["name"],
            &left["metadata"]["labels"]["x"]
        ),
        (&json!("c"), &json!("z"))
    );

    // An update takes what it changes, without asking.
    let merge =
        json!({"metadata": {"labels": {"x": "merge"}}, "spec": {"ports": [{"port": 90, "name": "m"}]}});
    let path = format!("{}/x?fieldManager=c", server.path("services"));
    let (code, updated) = server
        .raw("PATCH", &path, "application/merge-patch+json", &merge.to_string())
        .await;
    assert_eq!(code, 200, "{updated}");
    let item = json!({".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {}});
    let of_c = json!({"f:metadata": {"f:labels": {"f:x": {}}},
                      "f:spec": {"f:ports": {"k:{\"port\":90,\"protocol\":\"TCP\"}": item}}});
    let selector = json!({"f:spec": {"f:selector": {}}});
    let expected = [
        ("a Apply", selector.clone()),
        ("b Apply", selector),
        ("c Update", of_c),
    ];
    assert_eq!(owners(&updated), owned(&expected));
    let (code, status) = apply(
        &server,
        "services",
        "fieldManager=a",
        json!({"metadata": {"labels": {"x": "y"}}}),
    )
    .await;
    let message = "Apply failed with 1 conflict: conflict with \"c\" using v1: .metadata.labels.x";
    assert_eq!((code, &status["message"]), (409, &json!(message)));
    server.end().await;
}

#[tokio::test]
async fn a_config_map_is_owned_key_by_key() {
    let server = TestServer::new().await;
    let path = format!("{}?fieldManager=m", server.path("configmaps"));
    let object = json!({"metadata": {"name": "x", "finalizers": ["a.b/c"]}, "data": {"a": "b"}}).to_string();
    assert_eq!(
        server.raw("POST", &path, "application/json", &object).await.0,
        201
    );
    let path = format!("{}/x?fieldManager=other", server.path("configmaps"));
    let patch = json!({"metadata": {"finalizers": ["a.b/d"]}, "data": {"a": "c", "z": "x"}}).to_string();
    let (_, patched) = server
        .raw("PATCH", &path, "application/merge-patch+json", &patch)
        .await;
    let of_other =
        json!({"f:data": {"f:a": {}, "f:z": {}}, "f:metadata": {"f:finalizers": {"v:\"a.b/d\"": {}}}});
    let of_m = json!({"f:data": {}, "f:metadata": {"f:finalizers": {}}});
    assert_eq!(
        owners(&patched),
        owned(&[("m Update", of_m.clone()), ("other Update", of_other.clone())])
    );
    // In YAML, with a value that the other one has written too: both own it.
    let config =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, finalizers: [a.b/d]}\ndata:\n  z: x\n  o: p\n";
    let path = format!("{}/x?fieldManager=m", server.path("configmaps"));
    let (code, applied) = server.raw("PATCH", &path, APPLY, config).await;
    assert_eq!(
        (code, &applied["data"]),
        (200, &json!({"a": "c", "o": "p", "z": "x"})),
        "{applied}"
    );
    let applies =
        json!({"f:data": {"f:o": {}, "f:z": {}}, "f:metadata": {"f:finalizers": {"v:\"a.b/d\"": {}}}});
    assert_eq!(owners(&applied)[0], owned(&[("m Apply", applies)])[0]);
    let (code, less) = apply(
        &server,
        "configmaps",
        "fieldManager=m",
        json!({"data": {"o": "q"}}),
    )
    .await;
    assert_eq!(
        (code, &less["data"]),
        (200, &json!({"a": "c", "o": "q", "z": "x"}))
    );
    assert_eq!(
        less["metadata"]["finalizers"],
        json!(["a.b/d"]),
        "the other one owns it too"
    );
    assert_eq!(
        owners(&less),
        owned(&[
            ("m Apply", json!({"f:data": {"f:o": {}}})),
            ("m Update", of_m),
            ("other Update", of_other)
        ])
    );
    let path = format!("{}/x?fieldManager=other", server.path("configmaps"));
    let none = json!({"metadata": {"finalizers": null}}).to_string();
    assert_eq!(
        server
            .raw("PATCH", &path, "application/merge-patch+json", &none)
            .await
            .0,
        200
    );
    server.end().await;
}

#[tokio::test]
async fn an_item_that_others_own_a_part_of_stays_with_that_part() {
    let server = TestServer::new().await;
    let both = json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]}});
    assert_eq!(apply(&server, "services", "fieldManager=a", both).await.0, 201);
    let part = json!({"spec": {"ports": [{"port": 81, "appProtocol": "http"}]}});
    assert_eq!(apply(&server, "services", "fieldManager=b", part).await.0, 200);
    let less = json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "name": "a"}]}});
    let (code, status) = apply(&server, "services", "fieldManager=a", less).await;
    // It has lost its name, which a Service of two ports must have.
    assert_eq!(
        (code, &status["details"]["causes"][0]["field"]),
        (422, &json!("spec.ports[1].name")),
        "{status}"
    );
    server.end().await;
}

#[tokio::test]
async fn configurations_that_make_no_sense_are_refused() {
    let server = TestServer::new().await;
    let create = json!({"metadata": {"name": "x"}, "spec": {"ports": [{"port": 80}]}});
    server.create("services", &create).await;
    let own = |config: &str| {
        format!("{{\"apiVersion\":\"v1\",\"kind\":\"Service\",\"metadata\":{{\"name\":\"x\"}}{config}}}")
    };
    let rows = [
        (
            String::new(),
            own(""),
            422,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
        ),
        (
            format!("fieldManager={}", "m".repeat(129)),
            own(""),
            422,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes",
        ),
        (
            "fieldManager=m".into(),
            "{\"kind\":\"Service\",\"metadata\":{\"name\":\"x\"}}".into(),
            400,
            "invalid object type: /, Kind=Service",
        ),
        (
            "fieldManager=m".into(),
            "{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"metadata\":{\"name\":\"x\"}}".into(),
            400,
            "invalid object type: /v1, Kind=Secret",
        ),
        (
            "fieldManager=m".into(),
            own("").replace("\"x\"", "\"y\""),
            400,
            "the name of the object (y) does not match the name on the URL (x)",
        ),
        (
            "fieldManager=m".into(),
            own(",\"spec\":{\"foo\":1}"),
            500,
            "failed to create typed patch object (/x; /v1, Kind=Service): .spec.foo: field not declared in schema",
        ),
        (
            "fieldManager=m".into(),
            own(",\"spec\":{\"ports\":[{\"port\":80},{\"port\":80}]}"),
            500,
            "failed to create typed patch object (/x; /v1, Kind=Service): .spec.ports: duplicate entries for key [port=80,protocol=\"TCP\"]",
        ),
        (
            "fieldManager=m".into(),
            own("").replace(
                "\"name\":\"x\"",
                "\"name\":\"x\",\"managedFields\":[{\"manager\":\"m\"}]",
            ),
            400,
            "metadata.managedFields must be nil",
        ),
        (
            "fieldManager=m".into(),
            own("").replace("\"name\":\"x\"", "\"name\":\"x\",\"resourceVersion\":\"1\""),
            409,
            "Operation cannot be fulfilled on services \"x\": the object has been modified; please apply your changes to \
             the latest version and try again",
        ),
    ];
    for (query, config, code, message) in rows {
        let path = format!("{}/x?{query}", server.path("services"));
        let (found, status) = server.raw("PATCH", &path, APPLY, &config).await;
        assert_eq!(
            (found, &status["message"]),
            (code, &json!(message)),
            "{query} {config}"
        );
    }
    let path = format!("{}/x?fieldManager=m", server.path("services"));
    let (code, status) = server.raw("PATCH", &path, APPLY, "x: [").await;
    let message = status["message"].as_str().unwrap_or_default();
    assert!(
        code == 400 && message.starts_with("error decoding YAML: "),
        "{status}"
    );
    let path = format!("{}/x?force=true", server.path("services"));
    let (code, status) = server
        .raw("PATCH", &path, "application/merge-patch+json", "{}")
        .await;
    assert_eq!(
        (code, &status["details"]["causes"][0]["field"]),
        (422, &json!("force"))
    );
    let absent = own("")
        .replace("\"x\"", "\"y\"")
        .replace("\"name\"", "\"uid\":\"u\",\"name\"");
    let path = format!("{}/y?fieldManager=m", server.path("services"));
    assert_eq!(
        server.raw("PATCH", &path, APPLY, &absent).await.0,
        409,
        "it names an object that is not there"
    );
    server.end().await;
}

#[tokio::test]
async fn kubectl_applies_on_the_server_side() {
    let server = TestServer::new().await;
    let Some(kubectl) = Kubectl::new(&server) else {
        return;
    };
    let config = |port: u16| crate::kubectl::service("web", &json!([{"port": port, "name": "a"}]));
    let apply = ["apply", "--server-side", "-f", "-"];
    assert_eq!(
        kubectl.with_input(&apply, &config(80)).await.ok(),
        "service/web serverside-applied\n"
    );
    let other = ["apply", "--server-side", "--field-manager=other", "-f", "-"];
    let changed = config(80).replace("\"name\":\"a\"", "\"name\":\"b\"");
    let refused = kubectl.with_input(&other, &changed).await;
    assert!(!refused.success, "{refused:?}");
    let text =
        "Apply failed with 1 conflict: conflict with \"kubectl\": .spec.ports[port=80,protocol=\"TCP\"].name";
    assert!(refused.err.contains(text), "{refused:?}");
    let forced: Vec<&str> = other.iter().copied().chain(["--force-conflicts"]).collect();
    assert_eq!(
        kubectl.with_input(&forced, &changed).await.ok(),
        "service/web serverside-applied\n"
    );
    let found = kubectl.json(&["get", "svc", "web"]).await;
    assert_eq!(found["spec"]["ports"][0]["name"], "b");
    // What kubectl applied on its own side before is handed over.
    let local = crate::kubectl::service("moved", &json!([{"port": 80, "name": "a"}]));
    kubectl.with_input(&["apply", "-f", "-"], &local).await.ok();
    let moved = local.replace("\"name\":\"a\"", "\"name\":\"c\"");
    assert_eq!(
        kubectl.with_input(&apply, &moved).await.ok(),
        "service/moved serverside-applied\n"
    );
    let found = kubectl
        .json(&["get", "svc", "moved", "--show-managed-fields"])
        .await;
    assert_eq!(found["spec"]["ports"][0]["name"], "c");
    assert!(
        owners(&found).iter().any(|(who, _)| who == "kubectl Apply"),
        "{found}"
    );
    server.end().await;
}
