//! Connectivity of the lab without load balancing.

use cluster::Place;
use oracle::history::{Outcome, Stage, Transport};

use super::support::{TestLab, answered, in_pod, node};

const TRANSPORTS: [Transport; 3] = [Transport::Tcp, Transport::Udp, Transport::UdpConnected];

#[tokio::test(flavor = "multi_thread")]
async fn everybody_in_the_cluster_reaches_every_pod_and_sees_true_addresses() {
    let Some(test) = TestLab::up("reach").await else {
        return;
    };
    let b1 = test.server("b1", "node1", false).await;
    let b2 = test.server("b2", "node2", false).await;
    let h1 = test.server("h1", "node1", true).await;
    assert_eq!(
        (b1.as_str(), b2.as_str(), h1.as_str()),
        ("10.244.1.2", "10.244.2.2", "172.30.0.101")
    );

    let places = [
        (in_pod("b1"), b1.as_str()),
        (in_pod("b2"), b2.as_str()),
        (in_pod("h1"), h1.as_str()),
        (node("node1"), "172.30.0.101"),
        (node("node2"), "172.30.0.102"),
    ];
    for (from, own) in &places {
        for (to, address) in [("b1", &b1), ("b2", &b2), ("h1", &h1)] {
            for transport in TRANSPORTS {
                let outcome = test.dial(from, transport, address, 8080).await;
                let name = if transport == Transport::Tcp { "TCP" } else { "UDP" };
                assert_eq!(
                    answered(&outcome),
                    format!("{to}/{name}/8080"),
                    "{from:?} to {address}"
                );
                let Outcome::Answered { answer, peer } = outcome else {
                    unreachable!("answered")
                };
                assert_eq!(answer.source.ip().to_string(), *own, "{from:?} to {address}");
                assert_eq!(peer.to_string(), format!("{address}:8080"));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_outside_client_reaches_nodes_and_nothing_behind_them() {
    let Some(test) = TestLab::up("outside").await else {
        return;
    };
    let pod = test.server("b1", "node1", false).await;
    let host = test.server("h2", "node2", true).await;
    for transport in TRANSPORTS {
        let outcome = test.dial(&Place::Outside, transport, &host, 8080).await;
        assert!(answered(&outcome).starts_with("h2/"));
        let outcome = test.dial(&Place::Outside, transport, &pod, 8080).await;
        assert!(
            matches!(outcome, Outcome::Timeout { .. }),
            "{transport:?}: {outcome:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_ip_that_nobody_translates_is_silent() {
    let Some(test) = TestLab::up("silent").await else {
        return;
    };
    test.server("b1", "node1", false).await;
    for from in [node("node1"), in_pod("b1"), Place::Outside] {
        let outcome = test.dial(&from, Transport::Tcp, "10.96.0.1", 443).await;
        assert_eq!(
            outcome,
            Outcome::Timeout {
                stage: Stage::Handshake
            },
            "{from:?}"
        );
        let outcome = test.dial(&from, Transport::UdpConnected, "10.96.0.1", 53).await;
        assert_eq!(
            outcome,
            Outcome::Timeout {
                stage: Stage::Receive
            },
            "{from:?}"
        );
    }
}
