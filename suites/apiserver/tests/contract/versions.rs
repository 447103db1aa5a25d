//! The resourceVersion jumps.

use crate::{
    cluster::{Cluster, SLICES, config, create},
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
