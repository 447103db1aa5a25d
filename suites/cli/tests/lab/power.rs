//! A node that loses its power, and gets it back.

use std::time::{Duration, Instant};

use oracle::history::{Outcome, Transport};

use super::support::{LIMIT, TestLab, is_ready, node};

const LASTS: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_power_is_silent_and_goes_on_when_it_is_back() {
    let Some(test) = TestLab::up("power").await else {
        return;
    };
    let address = test.server("b1", "node2", false).await;
    let client = node("node1");
    let dial = || test.dial(&client, Transport::Tcp, &address, 8080);
    assert!(
        matches!(dial().await, Outcome::Answered { .. }),
        "it serves first"
    );
    let nodes = test.lab.cluster().nodes().expect("a lab has nodes");
    let held = nodes.lose_power("node2", LASTS).await.expect("lost");
    let outcome = dial().await;
    assert!(
        matches!(outcome, Outcome::Timeout { .. }),
        "no error says so: {outcome:?}"
    );
    let twice = nodes.lose_power("node2", LASTS).await.expect_err("it has none");
    assert!(twice.to_string().contains("it has none"), "{twice}");
    assert!(nodes.lose_power("node9", LASTS).await.is_err(), "there is none");
    test.pod("b1", is_ready).await;

    // Dropped, it heals as well.
    drop(held);
    let begin = Instant::now();
    while !matches!(dial().await, Outcome::Answered { .. }) {
        assert!(begin.elapsed() < LIMIT, "it serves again");
    }
}
