//! Events of a watch, and their order.

use serde_json::{Value, json};

use crate::{
    server::{TestServer, config},
    watching::{Watching, brief},
};

fn is((found, who): (String, String), kind: &str, name: &str) {
    assert_eq!((found.as_str(), who.as_str()), (kind, name));
}

fn slice(name: &str, labels: &Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels}, "addressType": "IPv4",
           "endpoints": [{"addresses": ["10.1.1.1"]}]})
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .expect("a version")
        .parse()
        .expect("a number")
}

#[tokio::test]
async fn a_watch_from_a_list_sees_each_change_once_and_in_order() {
    let server = TestServer::new().await;
    server
        .create("endpointslices", &slice("before", &json!({})))
        .await;
    let (_, list) = server.raw("GET", &server.path("endpointslices"), "", "").await;
    let at = list["metadata"]["resourceVersion"].as_str().expect("a version");
    let mut watching = Watching::of(
        &server,
        "endpointslices",
        &format!("resourceVersion={at}&timeoutSeconds=20"),
    )
    .await;
    let created = server.create("endpointslices", &slice("a", &json!({}))).await;
    let emptied = json!({"endpoints": []});
    let (_, patched) = server.patch("endpointslices", "a", "merge-patch", &emptied).await;
    // Changes nothing, so there is no event for it.
    let (code, same) = server.patch("endpointslices", "a", "merge-patch", &emptied).await;
    assert_eq!((code, &same), (200, &patched));
    server
        .raw("DELETE", &format!("{}/a", server.path("endpointslices")), "", "")
        .await;
    let events = [
        watching.next().await.expect("an event"),
        watching.next().await.expect("an event"),
        watching.next().await.expect("an event"),
    ];
    let kinds: Vec<_> = events.iter().map(|event| brief(event).0).collect();
    assert_eq!(kinds, ["ADDED", "MODIFIED", "DELETED"]);
    assert_eq!(events[0]["object"], created);
    assert_eq!(events[1]["object"], patched);
    assert_eq!(events[1]["object"]["endpoints"], Value::Null);
    let versions: Vec<u64> = events.iter().map(|event| version(&event["object"])).collect();
    assert!(
        versions[0] < versions[1] && versions[1] < versions[2],
        "{versions:?}"
    );
    server.end().await;
}

#[tokio::test]
async fn an_unset_or_zero_version_begins_with_the_state() {
    let server = TestServer::new().await;
    server.create("endpointslices", &slice("a", &json!({}))).await;
    for query in ["timeoutSeconds=20", "resourceVersion=0&timeoutSeconds=20"] {
        let mut watching = Watching::of(&server, "endpointslices", query).await;
        is(watching.brief().await, "ADDED", "a");
    }
    server.end().await;
}

#[tokio::test]
async fn selectors_turn_changes_into_additions_and_deletions() {
    let server = TestServer::new().await;
    server
        .create("endpointslices", &slice("a", &json!({"in": "no"})))
        .await;
    let query = "labelSelector=in%3Dyes&resourceVersion=0&timeoutSeconds=20";
    let mut watching = Watching::of(&server, "endpointslices", query).await;
    for value in ["yes", "no", "yes"] {
        let patch = json!({"metadata": {"labels": {"in": value}}});
        server.patch("endpointslices", "a", "merge-patch", &patch).await;
    }
    server
        .create("endpointslices", &slice("b", &json!({"in": "yes"})))
        .await;
    is(watching.brief().await, "ADDED", "a");
    let left = watching.next().await.expect("an event");
    is(brief(&left), "DELETED", "a");
    assert_eq!(
        left["object"]["metadata"]["labels"]["in"], "yes",
        "the last state that was selected"
    );
    is(watching.brief().await, "ADDED", "a");
    is(watching.brief().await, "ADDED", "b");
    let mut one = Watching::of(
        &server,
        "endpointslices",
        "fieldSelector=metadata.name%3Db&timeoutSeconds=20",
    )
    .await;
    is(one.brief().await, "ADDED", "b");
    server.end().await;
}

#[tokio::test]
async fn initial_events_end_with_an_annotated_bookmark() {
    let server = TestServer::new().await;
    server.create("endpointslices", &slice("a", &json!({}))).await;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true\
                 &timeoutSeconds=20";
    let mut watching = Watching::of(&server, "endpointslices", query).await;
    is(watching.brief().await, "ADDED", "a");
    let bookmark = watching.next().await.expect("an event");
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["kind"], "EndpointSlice");
    assert_eq!(
        bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    let at = version(&bookmark["object"]);
    let created = server.create("endpointslices", &slice("b", &json!({}))).await;
    assert!(version(&created) > at);
    // A server may send further bookmarks whenever it likes, and does before the watch's time is over.
    let mut next = watching.brief().await;
    while next.0 == "BOOKMARK" {
        next = watching.brief().await;
    }
    is(next, "ADDED", "b");
    let (code, refused) = server
        .raw(
            "GET",
            &format!("{}?watch=1&sendInitialEvents=true", server.path("pods")),
            "",
            "",
        )
        .await;
    assert_eq!((code, &refused["reason"]), (422, &json!("Invalid")));
    server.end().await;
}

#[tokio::test]
async fn a_watch_ends_after_its_timeout() {
    let server = TestServer::new().await;
    let mut watching = Watching::of(&server, "endpointslices", "resourceVersion=0&timeoutSeconds=1").await;
    assert_eq!(watching.next().await, None);
    server.end().await;
}

#[tokio::test]
async fn quiet_watches_get_bookmarks_that_follow_the_writes_of_others() {
    let mut quick = config();
    quick.bookmark_interval = std::time::Duration::from_millis(50);
    let Some(server) = TestServer::own_only(quick).await else {
        return;
    };
    let query = "resourceVersion=0&allowWatchBookmarks=true&timeoutSeconds=20";
    let mut watching = Watching::of(&server, "endpointslices", query).await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let written = version(&server.create("services", &service).await);
    loop {
        let event = watching.next().await.expect("an event");
        assert_eq!(event["type"], "BOOKMARK", "{event}");
        if version(&event["object"]) >= written {
            break;
        }
    }
    server.end().await;
}

#[tokio::test]
async fn a_version_that_history_has_lost_is_gone() {
    let Some(server) = TestServer::own_only(config()).await else {
        return;
    };
    let old = version(&server.create("endpointslices", &slice("a", &json!({}))).await);
    server.create("endpointslices", &slice("b", &json!({}))).await;
    server.own.as_ref().expect("our server").store.compact();
    let mut watching = Watching::of(&server, "endpointslices", &format!("resourceVersion={old}")).await;
    let event = watching.next().await.expect("an event");
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert_eq!(event["object"]["reason"], "Expired");
    assert_eq!(watching.next().await, None, "it ends after that");
    let query = format!("?resourceVersion={old}&resourceVersionMatch=Exact");
    let (code, _) = server
        .raw("GET", &(server.path("endpointslices") + &query), "", "")
        .await;
    assert_eq!(code, 410);
    server.end().await;
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_told_gone_and_holds_nothing() {
    let mut small = config();
    small.history_events = 50;
    let Some(server) = TestServer::own_only(small).await else {
        return;
    };
    let mut watching = Watching::of(&server, "endpointslices", "resourceVersion=0").await;
    // More than sockets buffer, so that the server must have stopped writing.
    let ballast = "x".repeat(200_000);
    server.create("endpointslices", &slice("a", &json!({}))).await;
    for round in 0..200 {
        let patch = json!({"metadata": {"annotations": {"ballast": format!("{round}{ballast}")}}});
        let (code, answer) = server.patch("endpointslices", "a", "merge-patch", &patch).await;
        assert_eq!(code, 200, "{answer}");
    }
    let mut seen = 0;
    loop {
        let event = watching.next().await.expect("an event");
        if event["type"] == "ERROR" {
            assert_eq!(event["object"]["code"], 410);
            break;
        }
        seen += 1;
    }
    assert!(
        seen < 200,
        "all {seen} changes were kept for a client that did not read"
    );
    assert_eq!(watching.next().await, None);
    server.end().await;
}

#[tokio::test]
async fn lists_at_a_version_show_that_version() {
    let server = TestServer::new().await;
    let first = version(&server.create("endpointslices", &slice("a", &json!({}))).await);
    server.create("endpointslices", &slice("b", &json!({}))).await;
    server
        .patch("endpointslices", "a", "merge-patch", &json!({"endpoints": []}))
        .await;
    let exact = format!("?resourceVersion={first}&resourceVersionMatch=Exact");
    let (code, list) = server
        .raw("GET", &(server.path("endpointslices") + &exact), "", "")
        .await;
    assert_eq!(code, 200, "{list}");
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(list["items"][0]["endpoints"][0]["addresses"], json!(["10.1.1.1"]));
    assert_eq!(list["metadata"]["resourceVersion"], first.to_string());
    for query in ["", "?resourceVersion=0", &format!("?resourceVersion={first}")] {
        let (_, list) = server
            .raw("GET", &(server.path("endpointslices") + query), "", "")
            .await;
        assert_eq!(list["items"].as_array().map(Vec::len), Some(2), "{query}");
    }
    let (code, late) = server
        .raw(
            "GET",
            &(server.path("endpointslices") + "?resourceVersion=99999999"),
            "",
            "",
        )
        .await;
    assert_eq!((code, &late["reason"]), (504, &json!("Timeout")));
    server.end().await;
}
