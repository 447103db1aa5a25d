//! Create, read, update, delete.

use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::world::{World, object, status};

#[tokio::test]
async fn an_object_reads_as_it_was_made_until_it_is_deleted() {
    let world = World::new().await;
    let api = world.api::<Service>();
    let service = object(json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}));
    let created: Service = api
        .create(&PostParams::default(), &service)
        .await
        .expect("created");
    let spec = created.spec.clone().expect("a spec");
    assert!(
        spec.cluster_ip
            .as_deref()
            .is_some_and(|ip| ip.starts_with("10.96.")),
        "{spec:?}"
    );
    assert_eq!(api.get("web").await.expect("found"), created);
    let again = api
        .create(&PostParams::default(), &service)
        .await
        .expect_err("there is one");
    assert_eq!(status(&again).1, "AlreadyExists");
    let merge = Patch::Merge(json!({"metadata": {"annotations": {"a": "b"}}}));
    let patched = api
        .patch("web", &PatchParams::default(), &merge)
        .await
        .expect("patched");
    assert_eq!(patched.metadata.annotations.expect("annotations")["a"], "b");
    assert_ne!(
        patched.metadata.resource_version,
        created.metadata.resource_version
    );
    api.delete("web", &DeleteParams::default())
        .await
        .expect("deleted");
    assert_eq!(status(&api.get("web").await.expect_err("it is gone")).0, 404);
    world.end().await;
}

#[tokio::test]
async fn empty_slices_read_back_as_null() {
    let world = World::new().await;
    let api = world.api::<EndpointSlice>();
    let path = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
        world.namespace
    );
    for (name, lists) in [
        ("empty", json!({"endpoints": [], "ports": []})),
        ("null", json!({"endpoints": null, "ports": null})),
        ("absent", json!({})),
    ] {
        let mut slice = json!({"metadata": {"name": name}, "addressType": "IPv4"});
        slice
            .as_object_mut()
            .expect("a map")
            .extend(lists.as_object().expect("a map").clone());
        let (code, created) = world
            .raw("POST", &path, "application/json", &slice.to_string())
            .await;
        assert_eq!(code, 201, "{created}");
        assert_eq!(created.get("endpoints"), Some(&json!(null)), "{created}");
        assert_eq!(created.get("ports"), Some(&json!(null)), "{created}");
    }
    assert_eq!(
        api.list(&ListParams::default())
            .await
            .expect("a list")
            .items
            .len(),
        3
    );
    world.end().await;
}
