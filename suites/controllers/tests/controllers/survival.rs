//! The EndpointSlice controller lives through the faults of its API server.

use std::time::Duration;

use lab_apiserver::faults::{Clients, Fault, Refusal};
use lab_controllers::{SliceSettings, keep_slices};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::world::World;

#[tokio::test]
async fn slices_are_right_after_every_fault() {
    let world = World::own().await;
    let own = world.own.as_ref().expect("our server");
    let stop = CancellationToken::new();
    let running = tokio::spawn(keep_slices(
        own.controller.clone(),
        SliceSettings::default(),
        stop.clone(),
    ));
    world.nodes(&[("node1", "a")]).await;
    let ports = json!([{"name": "main", "port": 80}]);
    world
        .service("web", json!({"selector": {"app": "web"}, "ports": ports}))
        .await;
    world.slices("web", &[": "]).await;
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
        world.pod("p1", "node1", "10.1.0.1", true, json!([])).await;
        world.pod("p2", "node1", "10.1.0.2", true, json!([])).await;
        world.delete_pod("p1", true).await;
        drop(guard);
        world.slices("web", &["main=80: 10.1.0.2"]).await;
        world.delete_pod("p2", true).await;
        world.slices("web", &[": "]).await;
    }
    stop.cancel();
    running.await.expect("an orderly end");
    world.end().await;
}
