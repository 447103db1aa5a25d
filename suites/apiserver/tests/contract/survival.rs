//! A kube-rs watcher lives through every fault: while it lasts it may know less, afterwards it knows everything.

use std::{collections::BTreeSet, pin::pin, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use lab_apiserver::faults::{Clients, Fault, Refusal};
use serde_json::Value;
use tokio::sync::watch;

use crate::{
    cluster::{Cluster, SLICES, ask, config, create},
    server::LIMIT,
};

/// What a watcher knows.
#[derive(Clone, Debug, Default)]
struct Known {
    names: BTreeSet<String>,
    /// Of the list under way.
    listing: BTreeSet<String>,
    errors: usize,
}

impl Known {
    fn take(&mut self, event: watcher::Result<Event<EndpointSlice>>) {
        let name = |slice: EndpointSlice| slice.metadata.name.expect("a name");
        match event {
            Ok(Event::Init) => self.listing.clear(),
            Ok(Event::InitApply(slice)) => drop(self.listing.insert(name(slice))),
            Ok(Event::InitDone) => self.names = std::mem::take(&mut self.listing),
            Ok(Event::Apply(slice)) => drop(self.names.insert(name(slice))),
            Ok(Event::Delete(slice)) => drop(self.names.remove(&name(slice))),
            Err(_) => self.errors += 1,
        }
    }
}

async fn follow(client: Client, config: watcher::Config, known: watch::Sender<Known>) {
    let api: Api<EndpointSlice> = Api::namespaced(client, "default");
    let mut events = pin!(watcher(api, config).default_backoff());
    while let Some(event) = events.next().await {
        known.send_modify(|known| known.take(event));
    }
}

async fn until(known: &mut watch::Receiver<Known>, what: &str, holds: impl Fn(&Known) -> bool) {
    let waited = tokio::time::timeout(LIMIT, known.wait_for(|known| holds(known))).await;
    let reached = waited.map(|found| found.expect("the watcher goes on").names.len());
    assert!(reached.is_ok(), "{what}: {:?}", known.borrow());
}

/// Runs one fault against one watcher. `cut`: it meets the fault only if its watch breaks first; `fails`: it then
/// reports errors (kube-rs reports none for a watch that ends early: it just watches again).
async fn survives(fault: Fault, cut: bool, fails: bool) {
    let Some(cluster) = Cluster::new(config()) else {
        return;
    };
    let replica = cluster.one();
    let admin = cluster.client(replica.address(), "admin").await;
    let whole = watcher::Config::default;
    // Lists come whole, in pages of one, and as events.
    for watching in [whole(), whole().page_size(1), whole().streaming_lists()] {
        create(&admin, "before").await;
        let (sender, mut known) = watch::channel(Known::default());
        let client = cluster.client(replica.address(), "watcher").await;
        let following = tokio::spawn(follow(client, watching, sender));
        until(&mut known, "the state", |known| known.names.contains("before")).await;
        let met = || Clients::User("watcher".into());
        let guard = cluster.faults.begin(met(), fault.clone()).expect("begun");
        let cutting = cut.then(|| {
            let now = Fault::CutWatches {
                after: Duration::ZERO,
            };
            cluster.faults.begin(met(), now).expect("begun")
        });
        create(&admin, "during").await;
        let path = format!("{SLICES}/before");
        let (code, _, _) = ask(&admin, "DELETE", &path, &Value::Null)
            .await
            .expect("an answer");
        assert_eq!(code, 200);
        if cut {
            until(&mut known, "the cut", |known| known.errors > 0).await;
            drop(cutting);
        }
        if fails {
            let before = known.borrow().errors;
            until(&mut known, "the fault", |known| known.errors > before).await;
        }
        drop(guard);
        create(&admin, "after").await;
        let all: BTreeSet<String> = ["after", "during", "kubernetes"].map(str::to_owned).into();
        until(&mut known, "everything", |known| known.names == all).await;
        following.abort();
        for name in ["during", "after"] {
            let path = format!("{SLICES}/{name}");
            ask(&admin, "DELETE", &path, &Value::Null)
                .await
                .expect("an answer");
        }
    }
    replica.stop().await.expect("an orderly end");
}

#[tokio::test]
async fn a_watcher_survives_cut_watches() {
    survives(
        Fault::CutWatches {
            after: Duration::from_millis(20),
        },
        true,
        false,
    )
    .await;
}

#[tokio::test]
async fn a_watcher_survives_delayed_events() {
    survives(
        Fault::DelayEvents {
            by: Duration::from_millis(500),
        },
        false,
        false,
    )
    .await;
}

#[tokio::test]
async fn a_watcher_survives_dropped_events() {
    survives(Fault::DropEvents, false, false).await;
}

#[tokio::test]
async fn a_watcher_survives_expired_versions() {
    survives(Fault::Expire, false, true).await;
}

#[tokio::test]
async fn a_watcher_survives_a_lagging_cache() {
    survives(Fault::Lag, true, false).await;
}

#[tokio::test]
async fn a_watcher_survives_too_many_requests() {
    let refusal = Refusal::TooManyRequests;
    survives(
        Fault::Refuse {
            refusal,
            retry_after: Some(1),
        },
        true,
        true,
    )
    .await;
}

#[tokio::test]
async fn a_watcher_survives_internal_errors() {
    let refusal = Refusal::InternalError;
    survives(
        Fault::Refuse {
            refusal,
            retry_after: None,
        },
        true,
        true,
    )
    .await;
}

#[tokio::test]
async fn a_watcher_survives_an_unavailable_server() {
    let refusal = Refusal::Unavailable;
    survives(
        Fault::Refuse {
            refusal,
            retry_after: None,
        },
        true,
        true,
    )
    .await;
}

#[tokio::test]
async fn a_watcher_survives_timeouts() {
    let refusal = Refusal::Timeout;
    survives(
        Fault::Refuse {
            refusal,
            retry_after: None,
        },
        true,
        true,
    )
    .await;
}

#[tokio::test]
async fn a_watcher_survives_slow_bodies() {
    survives(
        Fault::SlowBodies {
            bytes_per_second: 2000,
        },
        true,
        false,
    )
    .await;
}

#[tokio::test]
async fn a_watcher_survives_truncated_bodies() {
    survives(Fault::TruncateBodies { after: 30 }, true, false).await;
}

#[tokio::test]
async fn a_watcher_survives_a_restart_and_a_jump_of_versions() {
    let Some(cluster) = Cluster::new(config()) else {
        return;
    };
    let replica = cluster.one();
    let address = replica.address();
    let admin = cluster.client(address, "admin").await;
    create(&admin, "before").await;
    let (sender, mut known) = watch::channel(Known::default());
    let client = cluster.client(address, "watcher").await;
    let following = tokio::spawn(follow(client, watcher::Config::default(), sender));
    until(&mut known, "the state", |known| known.names.contains("before")).await;
    replica.kill().await;
    until(&mut known, "the end of the replica", |known| known.errors > 0).await;
    let replica = cluster.start(address, [10, 99, 99, 7]);
    create(&admin, "after").await;
    let all: BTreeSet<String> = ["after", "before", "kubernetes"].map(str::to_owned).into();
    until(&mut known, "the state after the restart", |known| {
        known.names == all
    })
    .await;
    cluster.store.jump_versions(5000);
    create(&admin, "later").await;
    until(&mut known, "what came after the jump", |known| {
        known.names.contains("later")
    })
    .await;
    following.abort();
    replica.stop().await.expect("an orderly end");
}
