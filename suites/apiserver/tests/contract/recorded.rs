//! Objects as a real control plane (Kubernetes 1.36) sent them to its watchers, in `recorded.jsonl`: what it
//! accepted is accepted here, strictly, and reads back field by field as it was.

use serde_json::Value;

use crate::server::TestServer;

/// What each server gives out anew.
const METADATA: [&str; 7] = [
    "managedFields",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

fn remove(value: &mut Value, fields: &[&str]) {
    if let Some(map) = value.as_object_mut() {
        map.retain(|field, _| !fields.contains(&field.as_str()));
    }
}

/// An object without what only its own cluster can give it.
fn portable(mut object: Value) -> Value {
    remove(&mut object["metadata"], &METADATA);
    if object["kind"] == "Service" {
        if object["spec"]["clusterIP"] != "None" {
            remove(&mut object["spec"], &["clusterIP", "clusterIPs"]);
        }
        remove(&mut object["spec"], &["healthCheckNodePort"]);
        for port in object["spec"]["ports"].as_array_mut().into_iter().flatten() {
            remove(port, &["nodePort"]);
        }
    }
    if object["kind"] == "Node" {
        // A new node is tainted by upstream's admission until its kubelet reports.
        remove(&mut object["spec"], &["taints"]);
    } else {
        remove(&mut object, &["status"]);
    }
    object
}

#[tokio::test]
async fn recorded_objects_read_back_as_they_were() {
    let server = TestServer::new().await;
    let mut kinds = Vec::new();
    for (number, line) in include_str!("recorded.jsonl").lines().enumerate() {
        let recorded: Value = serde_json::from_str(line).expect("an object");
        let mut object = portable(recorded);
        let kind = object["kind"].as_str().expect("a kind").to_owned();
        object["metadata"]["name"] = format!("recorded-{number}").into();
        remove(&mut object["metadata"], &["ownerReferences", "generateName"]);
        let plural = format!("{}s", kind.to_lowercase());
        let path = if kind == "Node" {
            "/api/v1/nodes".to_owned()
        } else {
            object["metadata"]["namespace"] = server.namespace.as_str().into();
            server.path(&plural)
        };
        let strict = format!("{path}?fieldValidation=Strict&dryRun=All");
        let (code, created) = server
            .raw("POST", &strict, "application/json", &object.to_string())
            .await;
        assert_eq!(code, 201, "{line}: {created}");
        assert_eq!(portable(created), object, "{line}");
        kinds.push(kind);
    }
    kinds.sort();
    kinds.dedup();
    assert_eq!(kinds, ["EndpointSlice", "Node", "Pod", "Service"]);
    server.end().await;
}
