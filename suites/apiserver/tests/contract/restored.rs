//! The resourceVersion jumps, and the store is put back to an earlier state.

use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, SLICES, ask, config, create, names},
    watching::Watching,
};

#[tokio::test]
async fn versions_jump_ahead_and_no_event_is_lost() {
    let mut quick = config();
    quick.bookmark_interval = std::time::Duration::from_millis(50);
    let Some(cluster) = Cluster::new(quick) else {
        return;
    };
    let replica = cluster.one();
    let client = cluster.client(replica.address(), "watcher").await;
    let version = create(&client, "before").await;
    let query = format!("resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=60");
    let mut watching = Watching::start(&client, SLICES, &query).await;
    cluster.store.jump_versions(1_000_000);
    let bookmarked = loop {
        let event = watching.next().await.expect("an event");
        assert_eq!(event["type"], "BOOKMARK", "nothing else happened");
        let text = event["object"]["metadata"]["resourceVersion"]
            .as_str()
            .expect("a version");
        let at: u64 = text.parse().expect("a number");
        if at > version {
            break at;
        }
    };
    assert_eq!(bookmarked, version + 1_000_000);
    let later = create(&client, "after").await;
    assert!(later > bookmarked);
    let event = loop {
        let event = watching.next().await.expect("an event");
        if event["type"] != "BOOKMARK" {
            break event;
        }
    };
    assert_eq!(event["object"]["metadata"]["resourceVersion"], later.to_string());
    replica.stop().await.expect("an orderly end");
}

#[tokio::test]
async fn a_restored_store_shows_what_was_and_tells_every_watch_410() {
    let Some(cluster) = Cluster::new(config()) else {
        return;
    };
    let replica = cluster.one();
    let client = cluster.client(replica.address(), "watcher").await;
    create(&client, "kept").await;
    let services = "/api/v1/namespaces/default/services";
    let held =
        json!({"metadata": {"name": "held"}, "spec": {"clusterIP": "10.96.3.3", "ports": [{"port": 80}]}});
    let (code, _, _) = ask(&client, "POST", services, &held).await.expect("an answer");
    assert_eq!(code, 201);
    let version = cluster.store.version();
    for path in [format!("{services}/held"), format!("{SLICES}/kept")] {
        let (code, _, _) = ask(&client, "DELETE", &path, &Value::Null)
            .await
            .expect("an answer");
        assert_eq!(code, 200);
    }
    let undone = create(&client, "undone").await;
    let query = format!("resourceVersion={undone}&timeoutSeconds=60");
    let mut watching = Watching::start(&client, SLICES, &query).await;
    cluster
        .store
        .restore(version, 500)
        .expect("the history reaches back");
    let event = watching.next().await.expect("an event");
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    let (_, _, list) = ask(&client, "GET", SLICES, &Value::Null)
        .await
        .expect("an answer");
    assert_eq!(names(&list), ["kept", "kubernetes"]);
    let text = list["metadata"]["resourceVersion"].as_str().expect("a version");
    assert!(text.parse::<u64>().expect("a number") >= undone + 500);
    // The address is held again by the service that is there again.
    let other =
        json!({"metadata": {"name": "other"}, "spec": {"clusterIP": "10.96.3.3", "ports": [{"port": 80}]}});
    let (code, _, refused) = ask(&client, "POST", services, &other).await.expect("an answer");
    assert_eq!(code, 422, "{refused}");
    let error = cluster
        .store
        .restore(version, 1)
        .expect_err("that history is gone");
    assert!(error.to_string().contains("too old resource version"), "{error}");
    replica.stop().await.expect("an orderly end");
}
