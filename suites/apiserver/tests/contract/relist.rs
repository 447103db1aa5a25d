//! A reflector lives through what its server does to it.

use std::pin::pin;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api,
    api::{ListParams, PostParams},
    runtime::watcher::{self, Event, watcher},
};
use serde_json::json;

use crate::server::{LIMIT, Own, TestServer, config, object};

fn slice(name: &str) -> EndpointSlice {
    object(json!({"metadata": {"name": name}, "addressType": "IPv4"}))
}

/// The next object that a watcher reports, whatever it had to do for it; errors are for its back-off.
async fn next_applied(
    events: &mut (impl futures::Stream<Item = watcher::Result<Event<EndpointSlice>>> + Unpin),
) -> String {
    let found = async {
        loop {
            match events.next().await.expect("a watcher never ends") {
                Ok(Event::Apply(slice) | Event::InitApply(slice)) => {
                    return slice.metadata.name.expect("a name");
                }
                Ok(Event::Init | Event::InitDone | Event::Delete(_)) | Err(_) => {}
            }
        }
    };
    tokio::time::timeout(LIMIT, found)
        .await
        .expect("an event in time")
}

#[tokio::test]
async fn a_watcher_lists_again_after_410_and_misses_nothing() {
    let Some(server) = TestServer::own_only(config()).await else {
        return;
    };
    for config in [
        watcher::Config::default(),
        watcher::Config::default().streaming_lists(),
    ] {
        let api = server.api::<EndpointSlice>();
        let mut events = pin!(watcher(api.clone(), config));
        let name = format!(
            "slice-{}",
            api.list(&ListParams::default())
                .await
                .expect("a list")
                .items
                .len()
        );
        api.create(&PostParams::default(), &slice(&name))
            .await
            .expect("created");
        while next_applied(&mut events).await != name {}
        server.own.as_ref().expect("our server").store.compact();
        let late = format!("{name}-late");
        api.create(&PostParams::default(), &slice(&late))
            .await
            .expect("created");
        while next_applied(&mut events).await != late {}
    }
    server.end().await;
}

#[tokio::test]
async fn replicas_show_one_store_and_a_stopped_one_ends_its_watches() {
    let first = Own::start(config());
    let store = first.store.clone();
    let other = Own::replica(
        store,
        lab_apiserver::Pki::new().expect("an authority"),
        "other".into(),
    );
    let (a, b) = (first.client(&first.token).await, other.client("other").await);
    let writing: Api<EndpointSlice> = Api::namespaced(a, "default");
    let reading: Api<EndpointSlice> = Api::namespaced(b, "default");
    let mut events = reading
        .watch(&kube::api::WatchParams::default(), "0")
        .await
        .expect("a watch")
        .boxed();
    writing
        .create(&PostParams::default(), &slice("shared"))
        .await
        .expect("created");
    let mut names = Vec::new();
    while !names.contains(&"shared".to_owned()) {
        let event = tokio::time::timeout(LIMIT, events.try_next())
            .await
            .expect("in time")
            .expect("an event");
        match event.expect("the watch goes on") {
            kube::api::WatchEvent::Added(slice) => names.push(slice.metadata.name.expect("a name")),
            other => panic!("expected ADDED, found {other:?}"),
        }
    }
    assert_eq!(names, ["kubernetes", "shared"]);
    other.stop().await.expect("an orderly end");
    let end = tokio::time::timeout(LIMIT, events.try_next())
        .await
        .expect("in time");
    assert!(
        matches!(end, Ok(None) | Err(_)),
        "the watch goes on without a server: {end:?}"
    );
    assert!(reading.get("shared").await.is_err(), "the port is closed");
    writing.get("shared").await.expect("the other replica goes on");
    first.stop().await.expect("an orderly end");
}
