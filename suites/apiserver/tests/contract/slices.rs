//! EndpointSlices: empty lists, defaults, what is refused.

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::server::TestServer;

async fn post(server: &TestServer, name: &str, slice: &Value) -> (u16, Value) {
    let mut object = slice.clone();
    object["metadata"] = json!({"name": name});
    server
        .raw(
            "POST",
            &server.path("endpointslices"),
            "application/json",
            &object.to_string(),
        )
        .await
}

#[tokio::test]
async fn empty_lists_read_back_as_null() {
    let server = TestServer::new().await;
    let rows = [
        (
            "empty",
            json!({"addressType": "IPv4", "endpoints": [], "ports": []}),
        ),
        (
            "null",
            json!({"addressType": "IPv4", "endpoints": null, "ports": null}),
        ),
        ("absent", json!({"addressType": "IPv4"})),
    ];
    for (name, slice) in rows {
        let (code, created) = post(&server, name, &slice).await;
        assert_eq!(code, 201, "{created}");
        let path = format!("{}/{name}", server.path("endpointslices"));
        let (_, read) = server.raw("GET", &path, "", "").await;
        for object in [created, read] {
            assert_eq!(object.get("endpoints"), Some(&Value::Null), "{object}");
            assert_eq!(object.get("ports"), Some(&Value::Null), "{object}");
        }
    }
    let typed = server
        .api::<EndpointSlice>()
        .list(&ListParams::default())
        .await
        .expect("a list");
    assert!(
        typed
            .items
            .iter()
            .all(|slice| slice.endpoints.is_none() && slice.ports.is_none())
    );
    server.end().await;
}

#[tokio::test]
async fn emptying_and_filling_count_as_generations_and_labels_do_too() {
    let server = TestServer::new().await;
    let full = json!({"endpoints": [{"addresses": ["10.1.1.1"]}], "ports": [{"port": 80}]});
    let mut slice = full.clone();
    slice["addressType"] = "IPv4".into();
    post(&server, "s", &slice).await;
    let rows = [
        (json!({"endpoints": []}), 2),
        (json!({"endpoints": null}), 2),
        (json!({"metadata": {"annotations": {"a": "b"}}}), 2),
        (full, 3),
        (json!({"ports": null, "endpoints": null}), 4),
        (json!({"metadata": {"labels": {"a": "b"}}}), 5),
    ];
    for (patch, generation) in rows {
        let (code, patched) = server.patch("endpointslices", "s", "merge-patch", &patch).await;
        assert_eq!(
            (code, &patched["metadata"]["generation"]),
            (200, &json!(generation)),
            "{patch}"
        );
    }
    server.end().await;
}

#[tokio::test]
async fn endpoints_and_ports_are_completed() {
    let server = TestServer::new().await;
    let slice = json!({"addressType": "IPv4", "ports": [{"port": 80}, {"name": "b", "port": 81, "protocol": "UDP"}],
        "endpoints": [{"addresses": ["10.1.1.1"]},
                      {"addresses": ["10.1.1.2"], "conditions": {"ready": false, "serving": true}}]});
    let (_, created) = post(&server, "s", &slice).await;
    let ports =
        json!([{"name": "", "port": 80, "protocol": "TCP"}, {"name": "b", "port": 81, "protocol": "UDP"}]);
    let endpoints = json!([{"addresses": ["10.1.1.1"], "conditions": {}},
                           {"addresses": ["10.1.1.2"], "conditions": {"ready": false, "serving": true}}]);
    assert_eq!((&created["ports"], &created["endpoints"]), (&ports, &endpoints));
    server.end().await;
}

#[tokio::test]
async fn wrong_slices_are_refused_field_by_field() {
    let server = TestServer::new().await;
    let address = |text: &str| json!({"addressType": "IPv4", "endpoints": [{"addresses": [text]}]});
    let six = |text: &str| json!({"addressType": "IPv6", "endpoints": [{"addresses": [text]}]});
    let many: Vec<Value> = (0..1001)
        .map(|n| json!({"addresses": [format!("10.1.{}.{}", n / 250, n % 250 + 1)]}))
        .collect();
    let here = "endpoints[0].addresses[0]";
    let rows = [
        (json!({}), "addressType", "Required value"),
        (json!({"addressType": "X"}), "addressType", "Unsupported value"),
        (
            address("169.254.128.7"),
            here,
            "may not be in the link-local range",
        ),
        (address("127.0.0.1"), here, "may not be in the loopback range"),
        (
            address("224.0.0.1"),
            here,
            "may not be in the link-local multicast range",
        ),
        (address("0.0.0.0"), here, "may not be unspecified"),
        (address("010.1.1.1"), here, "must not have leading 0s"),
        (address("x"), here, "must be a valid IP address"),
        (
            address("fd00::1"),
            "endpoints[0].addresses",
            "must be an IPv4 address",
        ),
        (six("fe80::1"), here, "may not be in the link-local range"),
        (six("FD00::A"), here, "must be in canonical form"),
        (
            six("::ffff:1.2.3.4"),
            here,
            "must not be an IPv4-mapped IPv6 address",
        ),
        (
            json!({"addressType": "IPv4", "endpoints": [{}]}),
            "endpoints[0].addresses",
            "Required value",
        ),
        (
            json!({"addressType": "IPv4", "endpoints": many}),
            "endpoints",
            "must have at most 1000 items",
        ),
        (
            json!({"addressType": "IPv4", "ports": [{}, {}]}),
            "ports[1].name",
            "Duplicate value",
        ),
        (
            json!({"addressType": "IPv4", "ports": [{"protocol": "x"}]}),
            "ports[0].protocol",
            "Unsupported value",
        ),
    ];
    for (slice, field, words) in rows {
        let (code, status) = post(&server, "wrong", &slice).await;
        let cause = &status["details"]["causes"][0];
        let said = cause["message"]
            .as_str()
            .is_some_and(|message| message.contains(words));
        assert!(
            code == 422 && cause["field"] == field && said,
            "expected {field}: {words}, found {status}"
        );
    }
    post(&server, "s", &json!({"addressType": "IPv4"})).await;
    let change = json!({"addressType": "IPv6"});
    let (code, status) = server.patch("endpointslices", "s", "merge-patch", &change).await;
    assert_eq!(
        (code, &status["details"]["causes"][0]["field"]),
        (422, &json!("addressType"))
    );
    server.end().await;
}
