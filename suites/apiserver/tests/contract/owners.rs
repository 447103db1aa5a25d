//! Objects go with their owner; a pod gets its node.

use serde_json::{Value, json};

use crate::{server::TestServer, watching::Watching};

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
    let server = TestServer::new().await;
    let owner = server.create("services", &service()).await;
    let mut other = service();
    other["metadata"]["name"] = "other".into();
    let other = server.create("services", &other).await;
    server
        .create("endpointslices", &owned("dependent", &[&owner]))
        .await;
    server
        .create("endpointslices", &owned("shared", &[&owner, &other]))
        .await;
    server.create("endpointslices", &owned("free", &[])).await;
    let query = "timeoutSeconds=60&fieldSelector=metadata.name%3D";
    let mut dependent = Watching::of(&server, "endpointslices", &format!("{query}dependent")).await;
    let mut shared = Watching::of(&server, "endpointslices", &format!("{query}shared")).await;
    for watching in [&mut dependent, &mut shared] {
        assert_eq!(watching.brief().await.0, "ADDED");
    }
    server
        .raw("DELETE", &format!("{}/owner", server.path("services")), "", "")
        .await;
    assert_eq!(
        dependent.brief().await,
        ("DELETED".to_owned(), "dependent".to_owned())
    );
    let event = shared.next().await.expect("an event");
    assert_eq!(event["type"], "MODIFIED");
    let left = &event["object"]["metadata"]["ownerReferences"];
    assert_eq!(left, &json!([reference(&other)]));
    let (code, _) = server
        .raw("GET", &format!("{}/free", server.path("endpointslices")), "", "")
        .await;
    assert_eq!(code, 200);
    server.end().await;
}

#[tokio::test]
async fn what_names_only_owners_that_are_gone_goes() {
    let server = TestServer::new().await;
    let owner = server.create("services", &service()).await;
    let mut gone = owner.clone();
    gone["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555".into();
    let mut absent = gone.clone();
    absent["metadata"]["name"] = "absent".into();
    // This one is of a kind that can't be looked up.
    let mut foreign = owned("foreign", &[&gone]);
    foreign["metadata"]["ownerReferences"][0]["apiVersion"] = "plumbline.example/v1".into();
    server.create("endpointslices", &foreign).await;
    let one = |name: &str| format!("timeoutSeconds=60&fieldSelector=metadata.name%3D{name}");
    for (name, missing) in [("of-another-uid", &gone), ("of-another-name", &absent)] {
        let mut watching = Watching::of(&server, "endpointslices", &one(name)).await;
        server.create("endpointslices", &owned(name, &[missing])).await;
        for event in ["ADDED", "DELETED"] {
            assert_eq!(watching.brief().await, (event.to_owned(), name.to_owned()));
        }
    }
    let mut watching = Watching::of(&server, "endpointslices", &one("shared")).await;
    server
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
    let mut watching = Watching::of(&server, "endpointslices", &one("later")).await;
    server.create("endpointslices", &owned("later", &[])).await;
    let patch = json!({"metadata": {"ownerReferences": [reference(&absent)]}});
    let (code, patched) = server
        .patch("endpointslices", "later", "merge-patch", &patch)
        .await;
    assert_eq!(code, 200, "{patched}");
    for event in ["ADDED", "MODIFIED", "DELETED"] {
        assert_eq!(watching.brief().await.0, event);
    }
    let path = format!("{}/foreign", server.path("endpointslices"));
    assert_eq!(server.raw("GET", &path, "", "").await.0, 200);
    server.end().await;
}

#[tokio::test]
async fn a_binding_gives_a_pod_its_node_once() {
    let server = TestServer::new().await;
    // No scheduler has this name, so that a real one is not faster.
    let pod = json!({"metadata": {"name": "p"}, "spec": {"schedulerName": "none", "containers": [{"name": "c", "image": "i"}]}});
    let created = server.create("pods", &pod).await;
    let path = format!("{}/p/binding", server.path("pods"));
    let binding = |node: &str| {
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
               "target": {"apiVersion": "v1", "kind": "Node", "name": node}})
        .to_string()
    };
    let json = "application/json";
    let (code, refused) = server.raw("POST", &path, json, &binding("")).await;
    assert_eq!(
        (code, &refused["message"]),
        (500, &json!("target.name: Required value"))
    );
    let (code, status) = server.raw("POST", &path, json, &binding("somewhere")).await;
    assert_eq!(
        (code, &status["kind"], &status["status"]),
        (201, &json!("Status"), &json!("Success")),
        "{status}"
    );
    let (_, bound) = server
        .raw("GET", &format!("{}/p", server.path("pods")), "", "")
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
    let (code, refused) = server.raw("POST", &path, json, &binding("elsewhere")).await;
    assert_eq!((code, &refused["reason"]), (409, &json!("Conflict")), "{refused}");
    let (code, refused) = server.raw("GET", &path, "", "").await;
    assert_eq!(
        (code, &refused["reason"]),
        (405, &json!("MethodNotAllowed")),
        "{refused}"
    );
    let absent = format!("{}/absent/binding", server.path("pods"));
    let (code, refused) = server.raw("POST", &absent, json, &binding("somewhere")).await;
    let mismatch = "name in URL does not match name in Binding object";
    assert_eq!((code, &refused["message"]), (400, &json!(mismatch)));
    let other = json!({"metadata": {"name": "absent"}, "target": {"name": "somewhere"}}).to_string();
    let (code, refused) = server.raw("POST", &absent, json, &other).await;
    assert_eq!((code, &refused["reason"]), (404, &json!("NotFound")));
    server
        .raw(
            "DELETE",
            &format!("{}/p?gracePeriodSeconds=0", server.path("pods")),
            "",
            "",
        )
        .await;
    server.end().await;
}
