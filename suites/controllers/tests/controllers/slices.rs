//! The EndpointSlices of a service follow its pods.

use k8s_openapi::api::{
    core::v1::{Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use lab_controllers::{SliceSettings, keep_slices};
use serde_json::json;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::server::TestServer;

/// Ours runs; a real cluster has its own.
fn controller(server: &TestServer, most_endpoints: usize) -> Option<DropGuard> {
    let own = server.own.as_ref()?;
    let stop = CancellationToken::new();
    let settings = SliceSettings { most_endpoints };
    tokio::spawn(keep_slices(own.controller.clone(), settings, stop.clone()));
    Some(stop.drop_guard())
}

fn spec() -> serde_json::Value {
    json!({"selector": {"app": "web"}, "ports": [{"name": "main", "port": 80, "targetPort": 8080}]})
}

fn name(slices: &[EndpointSlice]) -> String {
    slices[0].name_any()
}

#[tokio::test]
async fn endpoints_come_become_ready_terminate_and_leave_in_one_slice() {
    let server = TestServer::any().await;
    let _running = controller(&server, 100);
    server.nodes(&[("node1", "a"), ("node2", "b")]).await;
    let service = server.service("web", spec()).await;
    let placeholder = server.slices("web", &[": "]).await;
    server.pod("p1", "node1", "10.1.0.1", false, json!([])).await;
    let first = server
        .slices("web", &["main=8080: 10.1.0.1 !ready !serving"])
        .await;
    assert_eq!(
        name(&first),
        name(&placeholder),
        "what stood for nothing is written over"
    );
    server.ready("p1", true).await;
    server.pod("p2", "node2", "10.1.0.2", true, json!([])).await;
    let slices = server.slices("web", &["main=8080: 10.1.0.1, 10.1.0.2"]).await;
    let slice = &slices[0];
    let labels = slice.labels();
    assert_eq!(labels["kubernetes.io/service-name"], "web");
    assert_eq!(
        labels["endpointslice.kubernetes.io/managed-by"],
        "endpointslice-controller.k8s.io"
    );
    let owner = &slice.owner_references()[0];
    assert_eq!(
        (&owner.kind[..], &owner.uid, owner.controller),
        ("Service", &service.uid().expect("a uid"), Some(true))
    );
    let endpoint = &slice.endpoints.as_ref().expect("endpoints")[0];
    assert_eq!(
        (endpoint.node_name.as_deref(), endpoint.zone.as_deref()),
        (Some("node1"), Some("a"))
    );
    assert_eq!(
        endpoint.target_ref.as_ref().and_then(|pod| pod.name.as_deref()),
        Some("p1")
    );
    server.delete_pod("p1", false).await;
    server
        .slices("web", &["main=8080: 10.1.0.1 !ready terminating, 10.1.0.2"])
        .await;
    server.ready("p1", false).await;
    server
        .slices(
            "web",
            &["main=8080: 10.1.0.1 !ready !serving terminating, 10.1.0.2"],
        )
        .await;
    server.delete_pod("p1", true).await;
    server.slices("web", &["main=8080: 10.1.0.2"]).await;
    server.delete_pod("p2", true).await;
    let last = server.slices("web", &[": "]).await;
    assert_eq!(
        name(&last),
        name(&first),
        "scaled to nothing, it is one slice still"
    );
    let api: kube::Api<Service> = server.api();
    api.delete("web", &DeleteParams::default())
        .await
        .expect("deleted");
    server.slices("web", &[]).await;
    server.end().await;
}

#[tokio::test]
async fn named_ports_that_differ_have_slices_of_their_own() {
    let server = TestServer::any().await;
    let _running = controller(&server, 100);
    server.nodes(&[("node1", "a"), ("node2", "b")]).await;
    let ports = json!([{"name": "main", "port": 80, "targetPort": "http"}]);
    server
        .service("mixed", json!({"selector": {"app": "web"}, "ports": ports}))
        .await;
    server
        .pod(
            "p1",
            "node1",
            "10.1.0.1",
            true,
            json!([{"name": "http", "containerPort": 8080}]),
        )
        .await;
    server
        .pod(
            "p2",
            "node2",
            "10.1.0.2",
            true,
            json!([{"name": "http", "containerPort": 9090}]),
        )
        .await;
    server
        .slices("mixed", &["main=8080: 10.1.0.1", "main=9090: 10.1.0.2"])
        .await;
    server.delete_pod("p1", true).await;
    server.slices("mixed", &["main=9090: 10.1.0.2"]).await;
    server.end().await;
}

#[tokio::test]
async fn unready_pods_are_published_where_a_service_says_so_and_hints_follow_the_distribution() {
    let server = TestServer::any().await;
    let _running = controller(&server, 100);
    server.nodes(&[("node1", "a"), ("node2", "b")]).await;
    server.service("web", spec()).await;
    server.pod("p1", "node1", "10.1.0.1", true, json!([])).await;
    server.pod("p2", "node2", "10.1.0.2", false, json!([])).await;
    server
        .slices("web", &["main=8080: 10.1.0.1, 10.1.0.2 !ready !serving"])
        .await;
    server
        .patch_service("web", json!({"spec": {"trafficDistribution": "PreferSameZone"}}))
        .await;
    server
        .slices("web", &["main=8080: 10.1.0.1 for:a, 10.1.0.2 !ready !serving"])
        .await;
    server
        .patch_service("web", json!({"spec": {"publishNotReadyAddresses": true}}))
        .await;
    server
        .slices("web", &["main=8080: 10.1.0.1 for:a, 10.1.0.2 !serving for:b"])
        .await;
    server
        .patch_service("web", json!({"spec": {"trafficDistribution": "PreferSameNode"}}))
        .await;
    server
        .slices(
            "web",
            &["main=8080: 10.1.0.1 for:a on:node1, 10.1.0.2 !serving for:b on:node2"],
        )
        .await;
    server
        .patch_service(
            "web",
            json!({"spec": {"trafficDistribution": null, "publishNotReadyAddresses": null}}),
        )
        .await;
    server
        .slices("web", &["main=8080: 10.1.0.1, 10.1.0.2 !ready !serving"])
        .await;
    server.end().await;
}

#[tokio::test]
async fn a_service_without_a_selector_keeps_the_slices_that_people_write() {
    let server = TestServer::any().await;
    let _running = controller(&server, 100);
    server.nodes(&[("node1", "a")]).await;
    let api: kube::Api<EndpointSlice> = server.api();
    let ports = json!([{"name": "main", "port": 80}]);
    server.service("manual", json!({"ports": ports})).await;
    let slice = json!({"metadata": {"name": "manual-1", "labels": {"kubernetes.io/service-name": "manual"}},
                       "addressType": "IPv4", "endpoints": [{"addresses": ["10.9.9.9"], "conditions": {"ready": true, "serving": true}}],
                       "ports": [{"name": "main", "port": 8080}]});
    api.create(&kube::api::PostParams::default(), &crate::server::object(slice))
        .await
        .expect("created");
    // Another service shows that the controller has looked.
    server.service("web", spec()).await;
    server.slices("web", &[": "]).await;
    server.slices("manual", &["main=8080: 10.9.9.9"]).await;
    server.end().await;
}

#[tokio::test]
async fn many_endpoints_fill_several_slices_and_few_of_them_are_written() {
    let server = TestServer::own().await;
    let _running = controller(&server, 2);
    server.nodes(&[("node1", "a")]).await;
    server.service("web", spec()).await;
    server.slices("web", &[": "]).await;
    for (pod, address) in [("p1", "10.1.0.1"), ("p2", "10.1.0.2"), ("p3", "10.1.0.3")] {
        server.pod(pod, "node1", address, true, json!([])).await;
    }
    let three = ["main=8080: 10.1.0.1, 10.1.0.2", "main=8080: 10.1.0.3"];
    let before = server.slices("web", &three).await;
    server.pod("p4", "node1", "10.1.0.4", true, json!([])).await;
    let after = server
        .slices(
            "web",
            &["main=8080: 10.1.0.1, 10.1.0.2", "main=8080: 10.1.0.3, 10.1.0.4"],
        )
        .await;
    let full = |slices: &[EndpointSlice]| {
        let holds_first = |slice: &&EndpointSlice| {
            let mut endpoints = slice.endpoints.iter().flatten();
            endpoints.any(|endpoint| endpoint.addresses == ["10.1.0.1"])
        };
        let found = slices.iter().find(holds_first).expect("a slice");
        (found.name_any(), found.resource_version())
    };
    assert_eq!(full(&before), full(&after), "the full slice was not written");
    server.end().await;
}

#[tokio::test]
async fn a_dual_stack_service_has_slices_of_both_families() {
    let server = TestServer::own().await;
    let _running = controller(&server, 100);
    server.nodes(&[("node1", "a")]).await;
    let mut dual = spec();
    dual["ipFamilyPolicy"] = "RequireDualStack".into();
    server.service("web", dual).await;
    server.slices("web", &[": ", ": "]).await;
    server.pod("p1", "node1", "10.1.0.1", true, json!([])).await;
    server.pod("p2", "node1", "fd00:1::2", true, json!([])).await;
    server
        .slices("web", &["main=8080: 10.1.0.1", "main=8080: fd00:1::2"])
        .await;
    server
        .patch_service(
            "web",
            json!({"spec": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}}),
        )
        .await;
    server.slices("web", &["main=8080: 10.1.0.1"]).await;
    server.end().await;
}

#[tokio::test]
async fn a_slice_says_when_what_it_shows_happened() {
    const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";
    let server = TestServer::any().await;
    let _running = controller(&server, 100);
    server.nodes(&[("node1", "a")]).await;
    let service = server.service("web", spec()).await;
    let slices = server.slices("web", &[": "]).await;
    let created = service.creation_timestamp().expect("a time").0.to_string();
    assert_eq!(slices[0].annotations().get(TRIGGER), Some(&created));
    server.pod("p1", "node1", "10.1.0.1", false, json!([])).await;
    server
        .slices("web", &["main=8080: 10.1.0.1 !ready !serving"])
        .await;
    let ready = json!({"status": {"conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2040-01-02T03:04:05Z"},
    ]}});
    let pods: Api<Pod> = server.api();
    pods.patch_status("p1", &PatchParams::default(), &Patch::Merge(ready))
        .await
        .expect("a status");
    let slices = server.slices("web", &["main=8080: 10.1.0.1"]).await;
    let shown = slices[0].annotations().get(TRIGGER).map(String::as_str);
    assert_eq!(shown, Some("2040-01-02T03:04:05Z"));
    server.end().await;
}
