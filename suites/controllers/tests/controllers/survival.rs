//! The EndpointSlice controller lives through the faults of its API server.

use std::time::Duration;

use lab_apiserver::faults::{Clients, Fault, Refusal};
use lab_controllers::{SliceSettings, keep_slices};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::server::TestServer;

#[tokio::test]
async fn slices_are_right_after_every_fault() {
    let server = TestServer::own().await;
    let own = server.own.as_ref().expect("our server");
    let stop = CancellationToken::new();
    let running = tokio::spawn(keep_slices(
        own.controller.clone(),
        SliceSettings::default(),
        stop.clone(),
    ));
    server.nodes(&[("node1", "a")]).await;
    let ports = json!([{"name": "main", "port": 80}]);
    server
        .service("web", json!({"selector": {"app": "web"}, "ports": ports}))
        .await;
    server.slices("web", &[": "]).await;
    let faults = [
        Fault::CutWatches {
            after: Duration::from_millis(10),
        },
        Fault::DelayEvents {
            by: Duration::from_millis(300),
        },
        Fault::DropEvents,
        Fault::Expire,
        Fault::Lag,
        Fault::Refuse {
            refusal: Refusal::InternalError,
            retry_after: None,
        },
        Fault::SlowBodies {
            bytes_per_second: 3000,
        },
        Fault::TruncateBodies { after: 50 },
    ];
    for fault in faults {
        let guard = own
            .faults
            .begin(Clients::User("controller".into()), fault)
            .expect("begun");
        server.pod("p1", "node1", "10.1.0.1", true, json!([])).await;
        server.pod("p2", "node1", "10.1.0.2", true, json!([])).await;
        server.delete_pod("p1", true).await;
        drop(guard);
        server.slices("web", &["main=80: 10.1.0.2"]).await;
        server.delete_pod("p2", true).await;
        server.slices("web", &[": "]).await;
    }
    stop.cancel();
    running.await.expect("an orderly end");
    server.end().await;
}
