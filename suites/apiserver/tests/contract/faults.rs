//! What each fault does to a client, and that it does nothing to others.

use std::time::{Duration, Instant};

use kube::Client;
use lab_apiserver::{
    Replica,
    faults::{Clients, Fault, Refusal},
};
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, SLICES, ask, config, create, names},
    watching::{Broken, Watching},
};

/// A replica with a client that has faults, and one that has none.
struct Faulty {
    cluster: Cluster,
    replica: Replica,
    met: Client,
    spared: Client,
}

impl Faulty {
    async fn new() -> Option<Self> {
        let cluster = Cluster::new(config())?;
        let replica = cluster.one();
        Some(Self {
            met: cluster.client(replica.address(), "watcher").await,
            spared: cluster.client(replica.address(), "admin").await,
            cluster,
            replica,
        })
    }

    fn begin(&self, fault: Fault) -> lab_apiserver::faults::FaultGuard {
        let met = Clients::User("watcher".into());
        self.cluster.faults.begin(met, fault).expect("begun")
    }

    async fn end(self) {
        self.replica.stop().await.expect("an orderly end");
    }
}

async fn list(client: &Client, query: &str) -> (u16, Value) {
    let path = format!("{SLICES}{query}");
    let (code, _, list) = ask(client, "GET", &path, &Value::Null).await.expect("an answer");
    (code, list)
}

fn added(name: &str) -> (String, String) {
    ("ADDED".to_owned(), name.to_owned())
}

const NEW: &str = "timeoutSeconds=60&resourceVersion=";

#[tokio::test]
async fn a_refusal_names_its_code_and_when_to_come_again() {
    let Some(faulty) = Faulty::new().await else {
        return;
    };
    let rows = [
        (Refusal::TooManyRequests, 429, "TooManyRequests"),
        (Refusal::InternalError, 500, "InternalError"),
        (Refusal::Unavailable, 503, "ServiceUnavailable"),
        (Refusal::Timeout, 504, "Timeout"),
    ];
    for (refusal, code, reason) in rows {
        let guard = faulty.begin(Fault::Refuse {
            refusal,
            retry_after: Some(7),
        });
        let (found, retry, status) = ask(&faulty.met, "GET", SLICES, &Value::Null)
            .await
            .expect("an answer");
        assert_eq!((found, retry.as_deref()), (code, Some("7")), "{status}");
        assert_eq!(
            (&status["kind"], &status["reason"]),
            (&json!("Status"), &json!(reason))
        );
        assert_eq!(list(&faulty.spared, "").await.0, 200);
        drop(guard);
        assert_eq!(list(&faulty.met, "").await.0, 200, "it ended with its guard");
    }
    faulty.end().await;
}

#[tokio::test]
async fn a_fault_of_a_source_address_meets_who_comes_from_there() {
    let Some(faulty) = Faulty::new().await else {
        return;
    };
    let refuse = Fault::Refuse {
        refusal: Refusal::Unavailable,
        retry_after: None,
    };
    let begin = |source: [u8; 4]| {
        let source = Clients::Source(source.into());
        faulty
            .cluster
            .faults
            .begin(source, refuse.clone())
            .expect("begun")
    };
    let elsewhere = begin([127, 0, 0, 2]);
    assert_eq!(list(&faulty.met, "").await.0, 200);
    let here = begin([127, 0, 0, 1]);
    assert_eq!(
        (list(&faulty.met, "").await.0, list(&faulty.spared, "").await.0),
        (503, 503)
    );
    drop((elsewhere, here));
    assert_eq!(list(&faulty.met, "").await.0, 200);
    faulty.end().await;
}

#[tokio::test]
async fn cut_watches_break_in_the_middle_and_lists_do_not() {
    let Some(faulty) = Faulty::new().await else {
        return;
    };
    let query = format!("{NEW}{}", create(&faulty.spared, "before").await);
    let mut under_way = Watching::start(&faulty.met, SLICES, &query).await;
    let mut other = Watching::start(&faulty.spared, SLICES, &query).await;
    let guard = faulty.begin(Fault::CutWatches {
        after: Duration::from_millis(50),
    });
    assert_eq!(under_way.next_or_break().await, Err(Broken));
    let mut new = Watching::start(&faulty.met, SLICES, &query).await;
    assert_eq!(new.next_or_break().await, Err(Broken));
    assert_eq!(list(&faulty.met, "").await.0, 200);
    drop(guard);
    create(&faulty.spared, "after").await;
    assert_eq!(other.brief().await, added("after"));
    faulty.end().await;
}

#[tokio::test]
async fn delayed_events_come_late_in_order_and_at_once_when_the_fault_ends() {
    let Some(faulty) = Faulty::new().await else {
        return;
    };
    let query = format!("{NEW}{}", create(&faulty.spared, "before").await);
    let mut watching = Watching::start(&faulty.met, SLICES, &query).await;
    let by = Duration::from_millis(600);
    let guard = faulty.begin(Fault::DelayEvents { by });
    let start = Instant::now();
    for name in ["a", "b"] {
        create(&faulty.spared, name).await;
    }
    assert_eq!(watching.brief().await, added("a"));
    assert!(start.elapsed() >= by, "{:?}", start.elapsed());
    assert_eq!(watching.brief().await, added("b"));
    drop(guard);
    let long = faulty.begin(Fault::DelayEvents {
        by: lab_apiserver::faults::LONGEST,
    });
    create(&faulty.spared, "c").await;
    drop(long);
    assert_eq!(watching.brief().await, added("c"));
    faulty.end().await;
}

#[tokio::test]
async fn dropped_events_are_lost_without_a_sign_until_410_ends_the_watch() {
    let Some(faulty) = Faulty::new().await else {
        return;
    };
    let version = create(&faulty.spared, "before").await;
    let query = format!("{NEW}{version}&allowWatchBookmarks=true");
    let mut unlucky = Watching::start(&faulty.met, SLICES, &query).await;
    let mut lucky = Watching::start(&faulty.met, SLICES, &query).await;
    create(&faulty.spared, "seen").await;
    for watching in [&mut unlucky, &mut lucky] {
        assert_eq!(watching.brief().await, added("seen"));
    }
    let guard = faulty.begin(Fault::DropEvents);
    create(&faulty.spared, "lost").await;
    // What the watch lost, another one at its last version still shows once the fault is over.
    let mut other = Watching::start(&faulty.spared, SLICES, &query).await;
    assert_eq!(other.brief().await, added("seen"));
    assert_eq!(other.brief().await, added("lost"));
    drop(guard);
    let error = unlucky.next().await.expect("an event");
    assert_eq!(
        (&error["type"], &error["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert_eq!(unlucky.next().await, None);
    assert_eq!(
        names(&list(&faulty.met, "").await.1),
        ["before", "kubernetes", "lost", "seen"]
    );
    faulty.end().await;
}

#[tokio::test]
async fn expired_versions_are_told_410_and_lists_work() {
    let Some(faulty) = Faulty::new().await else {
        return;
    };
    let version = create(&faulty.spared, "before").await;
    let query = format!("{NEW}{version}");
    let mut under_way = Watching::start(&faulty.met, SLICES, &query).await;
    let guard = faulty.begin(Fault::Expire);
    let mut new = Watching::start(&faulty.met, SLICES, &query).await;
    for watching in [&mut under_way, &mut new] {
        let error = watching.next().await.expect("an event");
        assert_eq!(
            (&error["type"], &error["object"]["reason"]),
            (&json!("ERROR"), &json!("Expired"))
        );
        assert_eq!(watching.next().await, None);
    }
    let exact = format!("?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(list(&faulty.met, &exact).await.0, 410);
    assert_eq!(list(&faulty.met, "").await.0, 200);
    let next = |page: &Value| {
        let token = page["metadata"]["continue"].as_str().expect("a token");
        format!("?continue={token}")
    };
    let (_, page) = list(&faulty.met, "?limit=1").await;
    let (code, expired) = list(&faulty.met, &next(&page)).await;
    assert_eq!((code, &expired["reason"]), (410, &json!("Expired")));
    let (code, rest) = list(&faulty.met, &next(&expired)).await;
    assert_eq!(
        (code, names(&rest)),
        (200, vec!["kubernetes"]),
        "what is left, in the newest state"
    );
    drop(guard);
    assert_eq!(list(&faulty.met, &next(&page)).await.0, 200);
    assert_eq!(list(&faulty.met, &exact).await.0, 200);
    faulty.end().await;
}

#[tokio::test]
async fn a_cache_that_lags_shows_an_earlier_state_to_who_takes_any() {
    let Some(faulty) = Faulty::new().await else {
        return;
    };
    let version = create(&faulty.spared, "before").await;
    let mut watching = Watching::start(&faulty.met, SLICES, &format!("{NEW}{version}")).await;
    let guard = faulty.begin(Fault::Lag);
    let later = create(&faulty.spared, "later").await;
    let stale = ["before", "kubernetes"];
    let fresh = ["before", "kubernetes", "later"];
    let (_, any) = list(&faulty.met, "?resourceVersion=0").await;
    assert_eq!(
        (names(&any), &any["metadata"]["resourceVersion"]),
        (stale.to_vec(), &json!(version.to_string()))
    );
    let (_, old) = list(&faulty.met, &format!("?resourceVersion={version}")).await;
    assert_eq!(names(&old), stale);
    assert_eq!(names(&list(&faulty.met, "").await.1), fresh, "a consistent list");
    assert_eq!(names(&list(&faulty.spared, "?resourceVersion=0").await.1), fresh);
    let (code, refused) = list(&faulty.met, &format!("?resourceVersion={later}")).await;
    assert_eq!(
        (code, &refused["details"]["causes"][0]["reason"]),
        (504, &json!("ResourceVersionTooLarge"))
    );
    let mut state = Watching::start(&faulty.met, SLICES, &format!("{NEW}0")).await;
    assert_eq!(state.brief().await, added("before"));
    assert_eq!(state.brief().await, added("kubernetes"));
    drop(guard);
    // The cache catches up: nothing is lost, nothing comes twice.
    for watching in [&mut watching, &mut state] {
        assert_eq!(watching.brief().await, added("later"));
    }
    faulty.end().await;
}

#[tokio::test]
async fn truncated_answers_break_off_and_slow_ones_take_their_time() {
    let Some(faulty) = Faulty::new().await else {
        return;
    };
    let guard = faulty.begin(Fault::TruncateBodies { after: 20 });
    let broken = ask(&faulty.met, "GET", SLICES, &Value::Null).await;
    assert!(broken.is_err(), "{broken:?}");
    let mut watching = Watching::start(&faulty.met, SLICES, &format!("{NEW}0")).await;
    assert_eq!(watching.next_or_break().await, Err(Broken));
    drop(guard);
    let (_, whole) = list(&faulty.met, "").await;
    let bytes = u32::try_from(whole.to_string().len()).expect("a small list");
    let guard = faulty.begin(Fault::SlowBodies {
        bytes_per_second: bytes,
    });
    let start = Instant::now();
    assert_eq!(list(&faulty.met, "").await.1, whole);
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(900), "{took:?}");
    drop(guard);
    faulty.end().await;
}
