//! A hop of a small MTU near the client outside.

use std::time::{Duration, Instant};

use cluster::Place;
use oracle::history::{Attempt, Outcome};

use super::support::{LIMIT, TestLab, node};

const LASTS: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_learns_what_a_narrow_hop_takes_and_all_arrives() {
    let Some(test) = TestLab::up("hop").await else {
        return;
    };
    let server = test.server("h1", "node1", true).await;
    let cluster = test.lab.cluster();
    let outside = cluster.outside().expect("a lab has a client outside");
    let (held, addresses) = outside.narrow_hop(LASTS).await.expect("made");
    let own = addresses[0].to_string();
    let argv = [
        "probe",
        "transfer",
        "--client=x",
        "--target=t",
        &format!("--to={server}:8080"),
        &format!("--from={own}"),
        "--download=1000000",
        "--limit=10000",
    ];
    let child = cluster.exec(&Place::Outside, &argv.map(str::to_owned)).await;
    let output = child.expect("started").wait_with_output().await.expect("ended");
    let attempt: Attempt = serde_json::from_slice(&output.stdout).expect("an attempt");
    assert!(matches!(attempt.outcome, Outcome::Answered { .. }), "{attempt:?}");
    let (_, route) = test.shell(&node("node1"), &format!("ip route get {own}")).await;
    assert!(route.contains("mtu 1280"), "{route}");
    let twice = outside.narrow_hop(LASTS).await.expect_err("one at a time");
    assert!(twice.to_string().contains("there is one"), "{twice}");

    // Dropped, it heals as well.
    drop(held);
    let begin = Instant::now();
    loop {
        let (_, own_addresses) = test.shell(&Place::Outside, "ip address show dev lo").await;
        if !own_addresses.contains(&own) {
            return;
        }
        assert!(begin.elapsed() < LIMIT, "{own_addresses}");
    }
}
