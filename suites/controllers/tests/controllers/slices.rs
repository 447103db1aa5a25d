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

use crate::world::World;

/// Ours runs; a real cluster has its own.
fn controller(world: &World, most_endpoints: usize) -> Option<DropGuard> {
    let own = world.own.as_ref()?;
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
    let world = World::any().await;
    let _running = controller(&world, 100);
    world.nodes(&[("node1", "a"), ("node2", "b")]).await;
    let service = world.service("web", spec()).await;
    let placeholder = world.slices("web", &[": "]).await;
    world.pod("p1", "node1", "10.1.0.1", false, json!([])).await;
    let first = world
        .slices("web", &["main=8080: 10.1.0.1 !ready !serving"])
        .await;
    assert_eq!(
        name(&first),
        name(&placeholder),
        "what stood for nothing is written over"
    );
    world.ready("p1", true).await;
    world.pod("p2", "node2", "10.1.0.2", true, json!([])).await;
    let slices = world.slices("web", &["main=8080: 10.1.0.1, 10.1.0.2"]).await;
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
    world.delete_pod("p1", false).await;
    world
        .slices("web", &["main=8080: 10.1.0.1 !ready terminating, 10.1.0.2"])
        .await;
    world.ready("p1", false).await;
    world
        .slices(
            "web",
            &["main=8080: 10.1.0.1 !ready !serving terminating, 10.1.0.2"],
        )
        .await;
    world.delete_pod("p1", true).await;
    world.slices("web", &["main=8080: 10.1.0.2"]).await;
    world.delete_pod("p2", true).await;
    let last = world.slices("web", &[": "]).await;
    assert_eq!(
        name(&last),
        name(&first),
        "scaled to nothing, it is one slice still"
    );
    let api: kube::Api<Service> = world.api();
    api.delete("web", &DeleteParams::default())
        .await
        .expect("deleted");
    world.slices("web", &[]).await;
    world.end().await;
}

#[tokio::test]
async fn named_ports_that_differ_have_slices_of_their_own() {
    let world = World::any().await;
    let _running = controller(&world, 100);
    world.nodes(&[("node1", "a"), ("node2", "b")]).await;
    let ports = json!([{"name": "main", "port": 80, "targetPort": "http"}]);
    world
        .service("mixed", json!({"selector": {"app": "web"}, "ports": ports}))
        .await;
    world
        .pod(
            "p1",
            "node1",
            "10.1.0.1",
            true,
            json!([{"name": "http", "containerPort": 8080}]),
        )
        .await;
    world
        .pod(
            "p2",
            "node2",
            "10.1.0.2",
            true,
            json!([{"name": "http", "containerPort": 9090}]),
        )
        .await;
    world
        .slices("mixed", &["main=8080: 10.1.0.1", "main=9090: 10.1.0.2"])
        .await;
    world.delete_pod("p1", true).await;
    world.slices("mixed", &["main=9090: 10.1.0.2"]).await;
    world.end().await;
}

#[tokio::test]
async fn unready_pods_are_published_where_a_service_says_so_and_hints_follow_the_distribution() {
    let world = World::any().await;
    let _running = controller(&world, 100);
    world.nodes(&[("node1", "a"), ("node2", "b")]).await;
    world.service("web", spec()).await;
    world.pod("p1", "node1", "10.1.0.1", true, json!([])).await;
    world.pod("p2", "node2", "10.1.0.2", false, json!([])).await;
    world
        .slices("web", &["main=8080: 10.1.0.1, 10.1.0.2 !ready !serving"])
        .await;
    world
        .patch_service("web", json!({"spec": {"trafficDistribution": "PreferSameZone"}}))
        .await;
    world
        .slices("web", &["main=8080: 10.1.0.1 for:a, 10.1.0.2 !ready !serving"])
        .await;
    world
        .patch_service("web", json!({"spec": {"publishNotReadyAddresses": true}}))
        .await;
    world
        .slices("web", &["main=8080: 10.1.0.1 for:a, 10.1.0.2 !serving for:b"])
        .await;
    world
        .patch_service("web", json!({"spec": {"trafficDistribution": "PreferSameNode"}}))
        .await;
    world
        .slices(
            "web",
            &["main=8080: 10.1.0.1 for:a on:node1, 10.1.0.2 !serving for:b on:node2"],
        )
        .await;
    world
        .patch_service(
            "web",
            json!({"spec": {"trafficDistribution": null, "publishNotReadyAddresses": null}}),
        )
        .await;
    world
        .slices("web", &["main=8080: 10.1.0.1, 10.1.0.2 !ready !serving"])
        .await;
    world.end().await;
}

#[tokio::test]
async fn a_service_without_a_selector_keeps_the_slices_that_people_write() {
    let world = World::any().await;
    let _running = controller(&world, 100);
    world.nodes(&[("node1", "a")]).await;
    let api: kube::Api<EndpointSlice> = world.api();
    let ports = json!([{"name": "main", "port": 80}]);
    world.service("manual", json!({"ports": ports})).await;
    let slice = json!({"metadata": {"name": "manual-1", "labels": {"kubernetes.io/service-name": "manual"}},
                       "addressType": "IPv4", "endpoints": [{"addresses": ["10.9.9.9"], "conditions": {"ready": true, "serving": true}}],
                       "ports": [{"name": "main", "port": 8080}]});
    api.create(&kube::api::PostParams::default(), &crate::world::object(slice))
        .await
        .expect("created");
    // Another service shows that the controller has looked.
    world.service("web", spec()).await;
    world.slices("web", &[": "]).await;
    world.slices("manual", &["main=8080: 10.9.9.9"]).await;
    world.end().await;
}

#[tokio::test]
async fn many_endpoints_fill_several_slices_and_few_of_them_are_written() {
    let world = World::own().await;
    let _running = controller(&world, 2);
    world.nodes(&[("node1", "a")]).await;
    world.service("web", spec()).await;
    world.slices("web", &[": "]).await;
    for (pod, address) in [("p1", "10.1.0.1"), ("p2", "10.1.0.2"), ("p3", "10.1.0.3")] {
        world.pod(pod, "node1", address, true, json!([])).await;
    }
    let three = ["main=8080: 10.1.0.1, 10.1.0.2", "main=8080: 10.1.0.3"];
    let before = world.slices("web", &three).await;
    world.pod("p4", "node1", "10.1.0.4", true, json!([])).await;
    let after = world
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
    world.end().await;
}

#[tokio::test]
async fn a_dual_stack_service_has_slices_of_both_families() {
    let world = World::own().await;
    let _running = controller(&world, 100);
    world.nodes(&[("node1", "a")]).await;
    let mut dual = spec();
    dual["ipFamilyPolicy"] = "RequireDualStack".into();
    world.service("web", dual).await;
    world.slices("web", &[": ", ": "]).await;
    world.pod("p1", "node1", "10.1.0.1", true, json!([])).await;
    world.pod("p2", "node1", "fd00:1::2", true, json!([])).await;
    world
        .slices("web", &["main=8080: 10.1.0.1", "main=8080: fd00:1::2"])
        .await;
    world
        .patch_service(
            "web",
            json!({"spec": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}}),
        )
        .await;
    world.slices("web", &["main=8080: 10.1.0.1"]).await;
    world.end().await;
}

#[tokio::test]
async fn a_slice_says_when_what_it_shows_happened() {
    const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";
    let world = World::any().await;
    let _running = controller(&world, 100);
    world.nodes(&[("node1", "a")]).await;
    let service = world.service("web", spec()).await;
    let slices = world.slices("web", &[": "]).await;
    let created = service.creation_timestamp().expect("a time").0.to_string();
    assert_eq!(slices[0].annotations().get(TRIGGER), Some(&created));
    world.pod("p1", "node1", "10.1.0.1", false, json!([])).await;
    world
        .slices("web", &["main=8080: 10.1.0.1 !ready !serving"])
        .await;
    let ready = json!({"status": {"conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2040-01-02T03:04:05Z"},
    ]}});
    let pods: Api<Pod> = world.api();
    pods.patch_status("p1", &PatchParams::default(), &Patch::Merge(ready))
        .await
        .expect("a status");
    let slices = world.slices("web", &["main=8080: 10.1.0.1"]).await;
    let shown = slices[0].annotations().get(TRIGGER).map(String::as_str);
    assert_eq!(shown, Some("2040-01-02T03:04:05Z"));
    world.end().await;
}
