//! Sequences that watchers of a real control plane (Kubernetes 1.36) saw, played again: the same operations show the
//! same events here, field by field.
//!
//! A line of `sequences/NAME.jsonl` is an event: an object that was there or came, what changed of it (a merge patch), or
//! its end. Which operation made a change shows in the change: a node is a binding, a deletion's time a deletion, a
//! status a write of the status, the rest a write of the object. Left out: what each cluster gives out anew, times of
//! deletion, owners, and of nodes what their kubelets report of the machine.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    server::{TestServer, config},
    watching::Watching,
};

/// What each server gives out anew.
const ANEW: [&str; 6] = [
    "managedFields",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "selfLink",
    "ownerReferences",
];
const JSON: &str = "application/json";

/// One object, here and in the recording.
struct Replayed {
    path: String,
    /// As recorded last.
    recorded: Value,
    /// How much further its generation was in the recording.
    ahead: i64,
    watching: Watching,
    /// The operation that makes the next event has been done with the one before.
    done: bool,
}

fn collection(kind: &str) -> &'static str {
    match kind {
        "Node" => "/api/v1/nodes",
        "Pod" => "/api/v1/namespaces/default/pods",
        "Service" => "/api/v1/namespaces/default/services",
        "EndpointSlice" => "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
        other => panic!("no recording has a {other}"),
    }
}

/// An object without what can't be the same.
fn portable(mut object: Value, ahead: i64) -> Value {
    let meta = object["metadata"].as_object_mut().expect("metadata");
    meta.retain(|field, _| !ANEW.contains(&field.as_str()));
    if let Some(time) = meta.get_mut("deletionTimestamp") {
        *time = "set".into();
    }
    if let Some(generation) = meta.get_mut("generation") {
        *generation = (generation.as_i64().expect("a number") + ahead).into();
    }
    let conditions = object["status"]["conditions"]
        .as_array_mut()
        .into_iter()
        .flatten();
    for condition in conditions.filter(|condition| condition["type"] == "PodScheduled") {
        condition["lastTransitionTime"] = "set".into();
    }
    if object["kind"] == "Node" {
        let status = object["status"].as_object_mut().expect("a status");
        for field in ["nodeInfo", "daemonEndpoints"] {
            status.remove(field);
        }
    }
    object
}

async fn send(server: &TestServer, method: &str, path: &str, body: &Value) -> Value {
    let text = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let (code, answer) = server.raw(method, path, JSON, &text).await;
    assert!(code < 300, "{method} {path}: {answer}");
    answer
}

/// An object to write: as recorded, without marks of deletion.
fn writable(recorded: &Value) -> Value {
    let mut object = recorded.clone();
    let meta = object["metadata"].as_object_mut().expect("metadata");
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
        meta.remove(field);
    }
    object
}

impl Replayed {
    /// Brings an object here into the state that the recording begins with.
    async fn begin(server: &TestServer, recorded: Value) -> Self {
        let kind = recorded["kind"].as_str().expect("a kind");
        let name = recorded["metadata"]["name"].as_str().expect("a name");
        let path = format!("{}/{name}", collection(kind));
        let mut shown = send(server, "POST", collection(kind), &writable(&recorded)).await;
        if recorded["status"] != Value::Null && kind != "EndpointSlice" {
            shown = send(server, "PUT", &format!("{path}/status"), &writable(&recorded)).await;
        }
        let version = shown["metadata"]["resourceVersion"].as_str().expect("a version");
        let query =
            format!("resourceVersion={version}&fieldSelector=metadata.name%3D{name}&timeoutSeconds=60");
        let watching = Watching::start(&server.client, collection(kind), &query).await;
        let generation = |object: &Value| object["metadata"]["generation"].as_i64().unwrap_or(0);
        let ahead = generation(&recorded) - generation(&shown);
        assert_eq!(portable(shown, ahead), portable(recorded.clone(), 0), "{path}");
        Self {
            path,
            recorded,
            ahead,
            watching,
            done: false,
        }
    }

    /// Does what made an event, and compares what the watch shows.
    async fn step(&mut self, server: &TestServer, kind: &str, change: &Value) {
        let before = self.recorded.clone();
        json_patch::merge(&mut self.recorded, change);
        for field in ["endpoints", "ports"] {
            // In a slice, null is a value.
            if change.get(field) == Some(&Value::Null) {
                self.recorded[field] = Value::Null;
            }
        }
        if !std::mem::take(&mut self.done) {
            self.operate(server, kind, change, &before).await;
        }
        let event = self.watching.next().await.expect("an event");
        let shown = portable(event["object"].clone(), self.ahead);
        assert_eq!(
            (&event["type"], &shown),
            (&json!(kind), &portable(self.recorded.clone(), 0)),
            "{}: {change}",
            self.path
        );
    }

    async fn operate(&mut self, server: &TestServer, kind: &str, change: &Value, before: &Value) {
        let grace = &change["metadata"]["deletionGracePeriodSeconds"];
        let name = &before["metadata"]["name"];
        if kind == "DELETED" {
            send(server, "DELETE", &self.path, &Value::Null).await;
        } else if !grace.is_null() {
            send(
                server,
                "DELETE",
                &self.path,
                &json!({"gracePeriodSeconds": grace}),
            )
            .await;
            // What comes next is its end.
            self.done = *grace == 0;
        } else if let Some(node) = change["spec"]["nodeName"].as_str() {
            let zone = &change["metadata"]["labels"];
            let known = server
                .raw("GET", &format!("/api/v1/nodes/{node}"), "", "")
                .await
                .0
                == 200;
            if !known {
                send(
                    server,
                    "POST",
                    "/api/v1/nodes",
                    &json!({"metadata": {"name": node, "labels": zone}}),
                )
                .await;
            }
            let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
            send(server, "POST", &format!("{}/binding", self.path), &binding).await;
        } else if change["status"].is_null() {
            send(server, "PUT", &self.path, &writable(&self.recorded)).await;
        } else {
            send(
                server,
                "PUT",
                &format!("{}/status", self.path),
                &writable(&self.recorded),
            )
            .await;
        }
    }
}

async fn replay(sequence: &str) {
    let Some(server) = TestServer::own_only(config()).await else {
        return;
    };
    let mut objects: BTreeMap<String, Replayed> = BTreeMap::new();
    for line in sequence.lines() {
        let event: Value = serde_json::from_str(line).expect("an event");
        if event["type"] == "ADDED" {
            let object = event["object"].clone();
            let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
            objects.insert(name, Replayed::begin(&server, object).await);
        } else {
            let name = format!("{} {}", event["kind"], event["name"]);
            let replayed = objects.get_mut(&name).expect("it was there before");
            replayed
                .step(&server, event["type"].as_str().expect("a type"), &event["change"])
                .await;
        }
    }
    assert!(!objects.is_empty(), "the recording has events");
    server.end().await;
}

#[tokio::test]
async fn a_deployment_and_its_services_come_as_recorded() {
    replay(include_str!("sequences/create.jsonl")).await;
}

#[tokio::test]
async fn services_are_deleted_and_created_again_as_recorded() {
    replay(include_str!("sequences/delete_and_recreate.jsonl")).await;
}

#[tokio::test]
async fn a_service_grows_as_recorded() {
    replay(include_str!("sequences/many_slices.jsonl")).await;
}

#[tokio::test]
async fn slices_for_ports_of_different_numbers_change_as_recorded() {
    replay(include_str!("sequences/named_ports_differ.jsonl")).await;
}

#[tokio::test]
async fn a_node_is_lost_and_comes_back_as_recorded() {
    replay(include_str!("sequences/node_lost.jsonl")).await;
}

#[tokio::test]
async fn a_service_that_is_named_like_another_changes_as_recorded() {
    replay(include_str!("sequences/prefix_pair.jsonl")).await;
}

#[tokio::test]
async fn readiness_comes_and_goes_as_recorded() {
    replay(include_str!("sequences/readiness_flap.jsonl")).await;
}

#[tokio::test]
async fn pods_are_replaced_as_recorded() {
    replay(include_str!("sequences/rolling_update.jsonl")).await;
}

#[tokio::test]
async fn a_service_without_backends_is_emptied_and_filled_as_recorded() {
    replay(include_str!("sequences/scale_zero_and_back.jsonl")).await;
}

#[tokio::test]
async fn a_service_changes_its_type_as_recorded() {
    replay(include_str!("sequences/type_changes.jsonl")).await;
}

#[tokio::test]
async fn zones_and_policies_change_as_recorded() {
    replay(include_str!("sequences/zones_and_policy.jsonl")).await;
}
