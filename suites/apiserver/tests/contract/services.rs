//! Services: defaults, addresses, what is refused.

use std::collections::BTreeSet;

use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::Api;
use serde_json::{Value, json};

use crate::server::{TestServer, config};

async fn post(server: &TestServer, name: &str, spec: &Value) -> (u16, Value) {
    let service = json!({"metadata": {"name": name}, "spec": spec}).to_string();
    server
        .raw("POST", &server.path("services"), "application/json", &service)
        .await
}

#[tokio::test]
async fn a_service_is_completed() {
    let server = TestServer::new().await;
    let (code, service) = post(
        &server,
        "s",
        &json!({"selector": {"a": "b"}, "ports": [{"port": 80}]}),
    )
    .await;
    assert_eq!(code, 201, "{service}");
    let address = service["spec"]["clusterIP"].clone();
    assert!(
        address
            .as_str()
            .is_some_and(|address| address.starts_with("10.96.")),
        "{address}"
    );
    let expected = json!({
        "clusterIP": address, "clusterIPs": [address], "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "selector": {"a": "b"}, "sessionAffinity": "None", "type": "ClusterIP",
    });
    assert_eq!(service["spec"], expected);
    assert_eq!(service["status"], json!({"loadBalancer": {}}));
    let (_, headless) = post(
        &server,
        "h",
        &json!({"clusterIP": "None", "selector": {"a": "b"}}),
    )
    .await;
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    let (_, named) = post(
        &server,
        "n",
        &json!({"type": "ExternalName", "externalName": "example.com"}),
    )
    .await;
    let expected = json!({"type": "ExternalName", "externalName": "example.com", "sessionAffinity": "None"});
    assert_eq!(named["spec"], expected);
    let sticky = json!({"sessionAffinity": "ClientIP", "ports": [{"port": 80}]});
    let (_, sticky) = post(&server, "c", &sticky).await;
    assert_eq!(
        sticky["spec"]["sessionAffinityConfig"],
        json!({"clientIP": {"timeoutSeconds": 10800}})
    );
    let (_, open) = post(
        &server,
        "p",
        &json!({"type": "NodePort", "ports": [{"port": 80}]}),
    )
    .await;
    let node_port = open["spec"]["ports"][0]["nodePort"]
        .as_i64()
        .expect("a node port");
    assert!((30000..=32767).contains(&node_port) && open["spec"]["externalTrafficPolicy"] == "Cluster");
    server.end().await;
}

#[tokio::test]
async fn wrong_services_are_refused_field_by_field() {
    let server = TestServer::new().await;
    let rows = [
        (json!({}), "spec.ports", "FieldValueRequired"),
        (
            json!({"ports": [{"port": 80}, {"port": 81}]}),
            "spec.ports[0].name",
            "FieldValueRequired",
        ),
        (
            json!({"ports": [{"port": 0}]}),
            "spec.ports[0].port",
            "FieldValueInvalid",
        ),
        (
            json!({"ports": [{"port": 80, "protocol": "tcp"}]}),
            "spec.ports[0].protocol",
            "FieldValueNotSupported",
        ),
        (
            json!({"ports": [{"port": 80, "targetPort": "a_b"}]}),
            "spec.ports[0].targetPort",
            "FieldValueInvalid",
        ),
        (
            json!({"ports": [{"port": 80, "targetPort": 99999}]}),
            "spec.ports[0].targetPort",
            "FieldValueInvalid",
        ),
        (
            json!({"ports": [{"port": 80, "name": "A"}]}),
            "spec.ports[0].name",
            "FieldValueInvalid",
        ),
        (
            json!({"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]}),
            "spec.ports[1].name",
            "FieldValueDuplicate",
        ),
        (
            json!({"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]}),
            "spec.ports[1]",
            "FieldValueDuplicate",
        ),
        (
            json!({"type": "X", "ports": [{"port": 80}]}),
            "spec.type",
            "FieldValueNotSupported",
        ),
        (
            json!({"sessionAffinity": "X", "ports": [{"port": 80}]}),
            "spec.sessionAffinity",
            "FieldValueNotSupported",
        ),
        (
            json!({"clusterIP": "x", "ports": [{"port": 80}]}),
            "spec.clusterIPs[0]",
            "FieldValueInvalid",
        ),
        (
            json!({"clusterIP": "10.97.0.1", "ports": [{"port": 80}]}),
            "spec.clusterIPs",
            "FieldValueInvalid",
        ),
        (
            json!({"clusterIP": "10.96.0.1", "ports": [{"port": 80}]}),
            "spec.clusterIPs",
            "FieldValueInvalid",
        ),
        (
            json!({"clusterIP": "fd00::1", "ports": [{"port": 80}]}),
            "spec.clusterIPs[0]",
            "FieldValueInvalid",
        ),
        (
            json!({"ipFamilies": ["IPv6"], "ports": [{"port": 80}]}),
            "spec.ipFamilies[0]",
            "FieldValueInvalid",
        ),
        (
            json!({"type": "ExternalName"}),
            "spec.externalName",
            "FieldValueRequired",
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}),
            "spec.ports[0].nodePort",
            "FieldValueInvalid",
        ),
        (
            json!({"ports": [{"port": 80, "nodePort": 30080}]}),
            "spec.ports[0].nodePort",
            "FieldValueForbidden",
        ),
        (
            json!({"externalIPs": ["127.0.0.1"], "ports": [{"port": 80}]}),
            "spec.externalIPs[0]",
            "FieldValueInvalid",
        ),
    ];
    for (spec, field, reason) in rows {
        let (code, status) = post(&server, "wrong", &spec).await;
        let cause = &status["details"]["causes"][0];
        assert_eq!(
            (code, &cause["field"], &cause["reason"]),
            (422, &json!(field), &json!(reason)),
            "{status}"
        );
    }
    server.end().await;
}

#[tokio::test]
async fn addresses_are_kept_over_updates_and_freed_by_deletion() {
    let server = TestServer::new().await;
    let (_, first) = post(&server, "first", &json!({"ports": [{"port": 80}]})).await;
    let address = first["spec"]["clusterIP"].clone();
    let chosen = json!({"clusterIP": address, "ports": [{"port": 80}]});
    let (code, status) = post(&server, "second", &chosen).await;
    let message = status["message"].as_str().expect("a message");
    assert!(
        code == 422 && message.contains("provided IP is already allocated"),
        "{status}"
    );
    // A manifest without an address keeps the one that was given out.
    let manifest = json!({"metadata": {"name": "first"}, "spec": {"ports": [{"port": 81}]}}).to_string();
    let path = format!("{}/first", server.path("services"));
    let (_, replaced) = server.raw("PUT", &path, "application/json", &manifest).await;
    assert_eq!(replaced["spec"]["clusterIP"], address);
    // And so does one with the address, of a client that does not know the list.
    let spec = json!({"clusterIP": address, "ports": [{"port": 82}]});
    let manifest = json!({"metadata": {"name": "first"}, "spec": spec}).to_string();
    let (code, replaced) = server.raw("PUT", &path, "application/json", &manifest).await;
    assert_eq!(
        (code, &replaced["spec"]["clusterIPs"]),
        (200, &json!([address])),
        "{replaced}"
    );
    let other = json!({"spec": {"clusterIP": "10.96.250.250", "clusterIPs": ["10.96.250.250"]}});
    let (code, status) = server.patch("services", "first", "merge-patch", &other).await;
    assert_eq!(
        (code, &status["details"]["causes"][0]["field"]),
        (422, &json!("spec.clusterIPs[0]"))
    );
    let external = json!({"spec": {"type": "ExternalName", "externalName": "example.com"}});
    let (_, external) = server.patch("services", "first", "merge-patch", &external).await;
    assert!(external["spec"].get("clusterIP").is_none(), "{external}");
    let (code, second) = post(&server, "second", &chosen).await;
    assert_eq!((code, &second["spec"]["clusterIP"]), (201, &address), "{second}");
    server
        .raw("DELETE", &format!("{}/second", server.path("services")), "", "")
        .await;
    let (code, third) = post(&server, "third", &chosen).await;
    assert_eq!(code, 201, "{third}");
    server.end().await;
}

#[tokio::test]
async fn types_change_and_take_their_ports_along() {
    let server = TestServer::new().await;
    post(&server, "s", &json!({"ports": [{"port": 80}]})).await;
    let change = async |patch: Value| {
        let (code, service) = server
            .patch("services", "s", "merge-patch", &json!({"spec": patch}))
            .await;
        assert_eq!(code, 200, "{service}");
        service["spec"].clone()
    };
    let open = change(json!({"type": "NodePort"})).await;
    let node_port = open["ports"][0]["nodePort"].clone();
    assert!(node_port.is_number(), "{open}");
    let balanced = change(json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"})).await;
    assert_eq!(balanced["ports"][0]["nodePort"], node_port);
    assert!(balanced["healthCheckNodePort"].is_number(), "{balanced}");
    let closed = change(json!({"type": "ClusterIP"})).await;
    for field in [
        "externalTrafficPolicy",
        "healthCheckNodePort",
        "allocateLoadBalancerNodePorts",
    ] {
        assert!(closed.get(field).is_none(), "{field} stays in {closed}");
    }
    assert!(closed["ports"][0].get("nodePort").is_none(), "{closed}");
    assert_eq!(closed["clusterIP"], open["clusterIP"]);
    server.end().await;
}

#[tokio::test]
async fn every_address_of_a_small_range_is_given_out_once() {
    let mut small = config();
    small.service_cidrs = vec!["10.96.7.0/28".parse().expect("a range")];
    let Some(server) = TestServer::own_only(small).await else {
        return;
    };
    let mut given = BTreeSet::from(["10.96.7.1".to_owned()]);
    for number in 0..13 {
        let (code, service) = post(&server, &format!("s{number}"), &json!({"ports": [{"port": 80}]})).await;
        assert_eq!(code, 201, "{service}");
        let address = service["spec"]["clusterIP"]
            .as_str()
            .expect("an address")
            .to_owned();
        assert!(given.insert(address.clone()), "{address} twice");
    }
    // 16 addresses, less the network's and its broadcast.
    assert_eq!(given.len(), 14);
    let (code, status) = post(&server, "late", &json!({"ports": [{"port": 80}]})).await;
    assert!(
        code == 422 && status["message"].to_string().contains("range is full"),
        "{status}"
    );
    server.end().await;
}

#[tokio::test]
async fn two_families_are_served_where_both_are_configured() {
    let mut dual = config();
    dual.service_cidrs.push("fd00:96::/108".parse().expect("a range"));
    let Some(server) = TestServer::own_only(dual).await else {
        return;
    };
    let (_, both) = post(
        &server,
        "both",
        &json!({"ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]}),
    )
    .await;
    assert_eq!(both["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]), "{both}");
    assert!(
        both["spec"]["clusterIPs"][1]
            .as_str()
            .is_some_and(|ip| ip.starts_with("fd00:96:")),
        "{both}"
    );
    let single = json!({"spec": {"ipFamilyPolicy": "SingleStack"}});
    let (_, single) = server.patch("services", "both", "merge-patch", &single).await;
    assert_eq!(
        single["spec"]["clusterIPs"].as_array().map(Vec::len),
        Some(1),
        "{single}"
    );
    let (_, six) = post(
        &server,
        "six",
        &json!({"ipFamilies": ["IPv6"], "ports": [{"port": 80}]}),
    )
    .await;
    assert!(
        six["spec"]["clusterIP"]
            .as_str()
            .is_some_and(|ip| ip.starts_with("fd00:96:")),
        "{six}"
    );
    server.end().await;
}

#[tokio::test]
async fn the_api_server_has_a_service_of_its_own() {
    let Some(server) = TestServer::own_only(config()).await else {
        return;
    };
    let services: Api<Service> = Api::namespaced(server.client.clone(), "default");
    let spec = services
        .get("kubernetes")
        .await
        .expect("found")
        .spec
        .expect("a spec");
    assert_eq!(spec.cluster_ip.as_deref(), Some("10.96.0.1"));
    let slices: Api<EndpointSlice> = Api::namespaced(server.client.clone(), "default");
    let slice = slices.get("kubernetes").await.expect("found");
    assert_eq!(slice.endpoints.expect("endpoints")[0].addresses, ["10.77.0.1"]);
    assert_eq!(slice.ports.expect("ports")[0].port, Some(6443));
    server.end().await;
}

#[tokio::test]
async fn what_was_a_load_balancer_shows_no_addresses_any_more() {
    let server = TestServer::new().await;
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    server.create("services", &service).await;
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    let (code, shown) = server.patch("services", "s/status", "merge-patch", &status).await;
    assert_eq!(
        (code, &shown["status"]["loadBalancer"]["ingress"][0]["ip"]),
        (200, &json!("192.0.2.1"))
    );
    let (code, changed) = server
        .patch(
            "services",
            "s",
            "merge-patch",
            &json!({"spec": {"type": "ClusterIP"}}),
        )
        .await;
    assert_eq!((code, &changed["status"]), (200, &json!({"loadBalancer": {}})));
    server.end().await;
}
