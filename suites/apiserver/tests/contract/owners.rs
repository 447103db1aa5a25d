//! Objects go with their owner; a pod gets its node.

use serde_json::{Value, json};

use crate::{watching::Watching, world::World};

fn service() -> Value {
    json!({"metadata": {"name": "owner"}, "spec": {"ports": [{"port": 80}]}})
}

fn reference(owner: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]})
}

fn owned(name: &str, owners: &[&Value]) -> Value {
    let owners: Vec<Value> = owners.iter().map(|owner| reference(owner)).collect();
    json!({"metadata": {"name": name, "ownerReferences": owners}, "addressType": "IPv4",
           "endpoints": [{"addresses": ["10.1.1.1"]}]})
}

#[tokio::test]
async fn what_only_the_deleted_object_owned_is_deleted_with_it() {
    let world = World::new().await;
    let owner = world.create("services", &service()).await;
    let mut other = service();
    other["metadata"]["name"] = "other".into();
    let other = world.create("services", &other).await;
    world
        .create("endpointslices", &owned("dependent", &[&owner]))
        .await;
    world
        .create("endpointslices", &owned("shared", &[&owner, &other]))
        .await;
    world.create("endpointslices", &owned("free", &[])).await;
    let query = "timeoutSeconds=60&fieldSelector=metadata.name%3D";
    let mut dependent = Watching::of(&world, "endpointslices", &format!("{query}dependent")).await;
    let mut shared = Watching::of(&world, "endpointslices", &format!("{query}shared")).await;
    for watching in [&mut dependent, &mut shared] {
        assert_eq!(watching.brief().await.0, "ADDED");
    }
    world
        .raw("DELETE", &format!("{}/owner", world.path("services")), "", "")
        .await;
    assert_eq!(
        dependent.brief().await,
        ("DELETED".to_owned(), "dependent".to_owned())
    );
    let event = shared.next().await.expect("an event");
    assert_eq!(event["type"], "MODIFIED");
    let left = &event["object"]["metadata"]["ownerReferences"];
    assert_eq!(left, &json!([reference(&other)]));
    let (code, _) = world
        .raw("GET", &format!("{}/free", world.path("endpointslices")), "", "")
        .await;
    assert_eq!(code, 200);
    world.end().await;
}

#[tokio::test]
async fn what_names_only_owners_that_are_gone_goes() {
    let world = World::new().await;
    let owner = world.create("services", &service()).await;
    let mut gone = owner.clone();
    gone["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555".into();
    let mut absent = gone.clone();
    absent["metadata"]["name"] = "absent".into();
    // Of this one, nobody can know whether it is there.
    let mut foreign = owned("foreign", &[&gone]);
    foreign["metadata"]["ownerReferences"][0]["apiVersion"] = "plumbline.example/v1".into();
    world.create("endpointslices", &foreign).await;
    let one = |name: &str| format!("timeoutSeconds=60&fieldSelector=metadata.name%3D{name}");
    for (name, missing) in [("of-another-uid", &gone), ("of-another-name", &absent)] {
        let mut watching = Watching::of(&world, "endpointslices", &one(name)).await;
        world.create("endpointslices", &owned(name, &[missing])).await;
        for event in ["ADDED", "DELETED"] {
            assert_eq!(watching.brief().await, (event.to_owned(), name.to_owned()));
        }
    }
    let mut watching = Watching::of(&world, "endpointslices", &one("shared")).await;
    world
        .create("endpointslices", &owned("shared", &[&absent, &owner]))
        .await;
    assert_eq!(watching.brief().await.0, "ADDED");
    let event = watching.next().await.expect("an event");
    let left = &event["object"]["metadata"]["ownerReferences"];
    assert_eq!(
        (&event["type"], left),
        (&json!("MODIFIED"), &json!([reference(&owner)]))
    );
    // An owner that is gone may be named later as well.
    let mut watching = Watching::of(&world, "endpointslices", &one("later")).await;
    world.create("endpointslices", &owned("later", &[])).await;
    let patch = json!({"metadata": {"ownerReferences": [reference(&absent)]}});
    let (code, patched) = world
        .patch("endpointslices", "later", "merge-patch", &patch)
        .await;
    assert_eq!(code, 200, "{patched}");
    for event in ["ADDED", "MODIFIED", "DELETED"] {
        assert_eq!(watching.brief().await.0, event);
    }
    let path = format!("{}/foreign", world.path("endpointslices"));
    assert_eq!(world.raw("GET", &path, "", "").await.0, 200);
    world.end().await;
}

#[tokio::test]
async fn a_binding_gives_a_pod_its_node_once() {
    let world = World::new().await;
    // A scheduler of nobody's, so that no real one is faster.
    let pod = json!({"metadata": {"name": "p"}, "spec": {"schedulerName": "none", "containers": [{"name": "c", "image": "i"}]}});
    let created = world.create("pods", &pod).await;
    let path = format!("{}/p/binding", world.path("pods"));
    let binding = |node: &str| {
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
               "target": {"apiVersion": "v1", "kind": "Node", "name": node}})
        .to_string()
    };
    let json = "application/json";
    let (code, refused) = world.raw("POST", &path, json, &binding("")).await;
    assert_eq!(
        (code, &refused["message"]),
        (500, &json!("target.name: Required value"))
    );
    let (code, status) = world.raw("POST", &path, json, &binding("somewhere")).await;
    assert_eq!(
        (code, &status["kind"], &status["status"]),
        (201, &json!("Status"), &json!("Success")),
        "{status}"
    );
    let (_, bound) = world
        .raw("GET", &format!("{}/p", world.path("pods")), "", "")
        .await;
    assert_eq!(bound["spec"]["nodeName"], "somewhere");
    assert_eq!(bound["metadata"]["generation"], created["metadata"]["generation"]);
    let conditions = bound["status"]["conditions"].as_array().expect("conditions");
    assert!(
        conditions
            .iter()
            .any(|one| one["type"] == "PodScheduled" && one["status"] == "True"),
        "{conditions:?}"
    );
    let (code, refused) = world.raw("POST", &path, json, &binding("elsewhere")).await;
    assert_eq!((code, &refused["reason"]), (409, &json!("Conflict")), "{refused}");
    let (code, refused) = world.raw("GET", &path, "", "").await;
    assert_eq!(
        (code, &refused["reason"]),
        (405, &json!("MethodNotAllowed")),
        "{refused}"
    );
    let absent = format!("{}/absent/binding", world.path("pods"));
    let (code, refused) = world.raw("POST", &absent, json, &binding("somewhere")).await;
    let mismatch = "name in URL does not match name in Binding object";
    assert_eq!((code, &refused["message"]), (400, &json!(mismatch)));
    let other = json!({"metadata": {"name": "absent"}, "target": {"name": "somewhere"}}).to_string();
    let (code, refused) = world.raw("POST", &absent, json, &other).await;
    assert_eq!((code, &refused["reason"]), (404, &json!("NotFound")));
    world
        .raw(
            "DELETE",
            &format!("{}/p?gracePeriodSeconds=0", world.path("pods")),
            "",
            "",
        )
        .await;
    world.end().await;
}
