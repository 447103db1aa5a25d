//! Links that a killed agent has left, on a node with many pods.

use std::{sync::Arc, time::Instant};

use cluster::{Cluster, Stop};
use faults::{FaultInjector, Remains, StoppedAgent};
use futures::future::join_all;
use lab::{AgentCommand, LabCluster};
use serde_json::json;

use super::support::{LIMIT, TestLab, agent_is_ready, name};

/// Pods of the node; the device of each has two links.
const PODS: usize = 30;

#[tokio::test(flavor = "multi_thread")]
async fn what_only_pins_kept_has_ended_when_they_are_lost() {
    let up = TestLab::up_with("links", |config| {
        let program = config.plumbline.with_file_name("reference-agent");
        config.agent = AgentCommand::of_target("reference", Some(&program)).expect("built");
    });
    let Some(test) = up.await else {
        return;
    };
    agent_is_ready(&test.lab, "node1").await;
    let names: Vec<String> = (0..PODS).map(|at| format!("p{at}")).collect();
    join_all(names.iter().map(|name| test.server(name, "node1", false))).await;
    let cluster: Arc<Cluster> = Arc::new(
        LabCluster::attach(&name("links"))
            .await
            .expect("it is up")
            .cluster()
            .clone(),
    );
    let deadline = Instant::now() + LIMIT;
    loop {
        let now = Remains::of(&cluster, "node1").await.expect("a look");
        // One at each side of each pod's device, besides those of the node.
        if json!(now)["links"].as_u64() > u64::try_from(2 * PODS).ok() {
            break;
        }
        assert!(Instant::now() < deadline, "not all are served: {now}");
    }

    let agent = StoppedAgent::stop(&FaultInjector::new(Arc::clone(&cluster)), "node1", Stop::Kill)
        .await
        .expect("killed");
    agent.lose_pins().await.expect("lost");
    let left = Remains::of(&cluster, "node1").await.expect("a look");
    assert!(!left.has("links"), "{left}");
    agent.start().await.expect("started");
    test.lab.down().await.expect("down");
}
