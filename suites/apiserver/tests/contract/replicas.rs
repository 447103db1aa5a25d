//! Replicas come and go; `default/kubernetes` follows them as upstream's lease reconciler lets it.

use std::time::Instant;

use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, SLICES, anywhere, ask, config, create},
    watching::Watching,
};

/// The object of an event of the slice `kubernetes` without what each cluster gives out anew.
fn portable(event: &Value) -> Value {
    let mut event = event.clone();
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        event["object"]["metadata"]
            .as_object_mut()
            .expect("metadata")
            .remove(field);
    }
    event
}

const QUERY: &str = "fieldSelector=metadata.name%3Dkubernetes&timeoutSeconds=60";

#[tokio::test]
async fn a_stopping_replica_empties_the_kubernetes_slice_as_recorded_and_the_other_fills_it_again() {
    let Some(cluster) = Cluster::new(config()) else {
        return;
    };
    // Two replicas that advertise one address, as in the recording (Kubernetes 1.36, endpoint reconciler `lease`).
    let staying = cluster.one();
    let stopping = cluster.one();
    let client = cluster.client(staying.address(), "watcher").await;
    let mut watching = Watching::start(&client, SLICES, QUERY).await;
    let mut events = vec![watching.next().await.expect("an event")];
    stopping.stop().await.expect("an orderly end");
    events.push(watching.next().await.expect("an event"));
    events.push(watching.next().await.expect("an event"));
    let recorded: Vec<Value> = include_str!("kubernetes_emptied.jsonl")
        .lines()
        .map(|line| portable(&serde_json::from_str(line).expect("an event")))
        .collect();
    let shown: Vec<Value> = events.iter().map(portable).collect();
    assert_eq!(shown, recorded);
    staying.stop().await.expect("an orderly end");
}

#[tokio::test]
async fn each_replica_shows_its_own_address_and_a_killed_one_is_shown_until_its_lease_ends() {
    let mut slow = config();
    slow.lease = std::time::Duration::from_secs(2);
    let lease = slow.lease;
    let Some(cluster) = Cluster::new(slow) else {
        return;
    };
    let first = cluster.start(anywhere(), [10, 77, 0, 1]);
    let second = cluster.start(anywhere(), [10, 77, 0, 2]);
    let third = cluster.start(anywhere(), [10, 77, 0, 3]);
    let client = cluster.client(first.address(), "watcher").await;
    let mut watching = Watching::start(&client, SLICES, QUERY).await;
    let shown = |event: &Value| -> Vec<String> {
        let endpoints = event["object"]["endpoints"].as_array().expect("endpoints").iter();
        endpoints
            .map(|one| one["addresses"][0].as_str().expect("an address").to_owned())
            .collect()
    };
    let event = watching.next().await.expect("an event");
    assert_eq!(shown(&event), ["10.77.0.1", "10.77.0.2", "10.77.0.3"]);
    third.stop().await.expect("an orderly end");
    let event = watching.next().await.expect("an event");
    assert_eq!(
        shown(&event),
        ["10.77.0.1", "10.77.0.2"],
        "gone with its own reconcile"
    );
    let address = second.address();
    let killed = Instant::now();
    second.kill().await;
    let event = watching.next().await.expect("an event");
    assert_eq!(shown(&event), ["10.77.0.1"]);
    // Its last renewal was at most one interval before its end.
    assert!(
        killed.elapsed() + config().reconcile_interval * 2 >= lease,
        "{:?}",
        killed.elapsed()
    );
    let back = cluster.start(address, [10, 77, 0, 2]);
    let event = watching.next().await.expect("an event");
    assert_eq!(shown(&event), ["10.77.0.1", "10.77.0.2"]);
    for replica in [first, back] {
        replica.stop().await.expect("an orderly end");
    }
    // The last one leaves an empty slice, which the next replica finds.
    let last = cluster.start(address, [10, 77, 0, 9]);
    let client = cluster.client(address, "watcher").await;
    let path = format!("{SLICES}/kubernetes");
    let (_, _, slice) = ask(&client, "GET", &path, &Value::Null).await.expect("an answer");
    assert_eq!(shown(&json!({"object": slice})), ["10.77.0.9"]);
    last.stop().await.expect("an orderly end");
}

#[tokio::test]
async fn the_kubernetes_service_and_slice_come_back_after_their_deletion() {
    let Some(cluster) = Cluster::new(config()) else {
        return;
    };
    let replica = cluster.one();
    let client = cluster.client(replica.address(), "admin").await;
    let services = "/api/v1/namespaces/default/services";
    for path in [services, SLICES] {
        let one = format!("{path}/kubernetes");
        let (_, _, before) = ask(&client, "GET", &one, &Value::Null).await.expect("an answer");
        let mut watching = Watching::start(&client, path, QUERY).await;
        watching.next().await.expect("the state");
        let (code, _, _) = ask(&client, "DELETE", &one, &Value::Null)
            .await
            .expect("an answer");
        assert_eq!(code, 200);
        let gone = watching.next().await.expect("an event");
        let back = watching.next().await.expect("an event");
        assert_eq!(
            (&gone["type"], &back["type"]),
            (&json!("DELETED"), &json!("ADDED"))
        );
        for field in ["spec", "endpoints", "ports"] {
            assert_eq!(back["object"][field], before[field], "{one}: {field}");
        }
    }
    replica.stop().await.expect("an orderly end");
}

#[tokio::test]
async fn a_reconciler_that_rests_leaves_what_others_write_and_mends_it_afterwards() {
    let Some(cluster) = Cluster::new(config()) else {
        return;
    };
    let replica = cluster.one();
    let client = cluster.client(replica.address(), "admin").await;
    let path = format!("{SLICES}/kubernetes");
    let read = async || {
        ask(&client, "GET", &path, &Value::Null)
            .await
            .expect("an answer")
            .2
    };
    let before = read().await;
    let (outer, inner) = (cluster.rest_reconciler(), cluster.rest_reconciler());
    let mut emptied = before.clone();
    for field in ["endpoints", "ports"] {
        emptied[field] = Value::Null;
    }
    let (code, _, emptied) = ask(&client, "PUT", &path, &emptied).await.expect("an answer");
    assert_eq!(code, 200);
    drop(inner);
    // As many rounds as would have mended it.
    tokio::time::sleep(config().reconcile_interval * 3).await;
    assert_eq!(read().await, emptied, "no replica has written it");
    drop(outer);
    let after = read().await;
    for field in ["endpoints", "ports"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    replica.stop().await.expect("an orderly end");
}

#[tokio::test]
async fn a_killed_replica_breaks_its_watches_and_one_at_its_address_goes_on_where_they_were() {
    let Some(cluster) = Cluster::new(config()) else {
        return;
    };
    let replica = cluster.one();
    let address = replica.address();
    let client = cluster.client(address, "watcher").await;
    let version = create(&client, "before").await;
    let query = format!("resourceVersion={version}&timeoutSeconds=60");
    let mut watching = Watching::start(&client, SLICES, &query).await;
    replica.kill().await;
    let end = watching.next_or_break().await;
    assert!(matches!(end, Ok(None) | Err(_)), "{end:?}");
    assert!(
        ask(&client, "GET", SLICES, &Value::Null).await.is_err(),
        "its port is closed"
    );
    let replica = cluster.start(address, [10, 99, 99, 7]);
    create(&client, "after").await;
    let mut watching = Watching::start(&client, SLICES, &query).await;
    assert_eq!(watching.brief().await, ("ADDED".to_owned(), "after".to_owned()));
    replica.stop().await.expect("an orderly end");
}
