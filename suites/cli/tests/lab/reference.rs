//! The lab with the reference agent: one Service by hand, end to end.

use std::time::{Duration, Instant};

use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{Api, api::PostParams};
use lab::{
    cluster::Cluster,
    embedded::{AgentCommand, LabCluster, Lifetime},
};
use oracle::history::{Outcome, Transport};
use serde_json::json;

use super::support::{LIMIT, TestLab, answered, config, in_pod, name, node, privileged};

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_ip_answers_from_its_pod() {
    if !privileged() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(&name("reference"), folder.path());
    config.agent = AgentCommand::reference(&config.plumbline.with_file_name("reference-agent"));
    let lab = LabCluster::up(&config, Lifetime::WithCaller, |_| {})
        .await
        .expect("up");
    let test = TestLab { lab, folder };
    for node in ["node1", "node2"] {
        agent_is_ready(&test, node).await;
    }

    let backend = test.server("b1", "node1", false).await;
    test.server("c2", "node2", false).await;
    let ports = json!([
        {"name": "tcp", "protocol": "TCP", "port": 80, "targetPort": 8080},
        {"name": "udp", "protocol": "UDP", "port": 80, "targetPort": 8080},
    ]);
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": ports}});
    let services: Api<Service> = Api::namespaced(test.lab.client(), "default");
    let service = serde_json::from_value(service).expect("a Service");
    let service = services
        .create(&PostParams::default(), &service)
        .await
        .expect("create a Service");
    let address = service
        .spec
        .and_then(|spec| spec.cluster_ip)
        .expect("a ClusterIP");
    let slice = json!({
        "metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}},
        "addressType": "IPv4",
        "ports": [
            {"name": "tcp", "protocol": "TCP", "port": 8080},
            {"name": "udp", "protocol": "UDP", "port": 8080},
        ],
        "endpoints": [{"addresses": [backend], "conditions": {"ready": true}}],
    });
    let slices: Api<EndpointSlice> = Api::namespaced(test.lab.client(), "default");
    let slice = serde_json::from_value(slice).expect("an EndpointSlice");
    slices
        .create(&PostParams::default(), &slice)
        .await
        .expect("create an EndpointSlice");

    for from in [in_pod("c2"), in_pod("b1"), node("node1"), node("node2")] {
        for (transport, identity) in [
            (Transport::Tcp, "b1/TCP/8080"),
            (Transport::Udp, "b1/UDP/8080"),
            (Transport::UdpConnected, "b1/UDP/8080"),
        ] {
            let deadline = Instant::now() + LIMIT;
            let outcome = loop {
                let outcome = test.dial(&from, transport, &address, 80).await;
                if matches!(outcome, Outcome::Answered { .. }) || Instant::now() >= deadline {
                    break outcome;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            assert_eq!(answered(&outcome), identity, "{from:?} {transport:?}");
            let Outcome::Answered { peer, .. } = outcome else {
                unreachable!("answered")
            };
            assert_eq!(
                peer.to_string(),
                format!("{address}:80"),
                "the client sees what it asked for"
            );
        }
    }
    test.lab.down().await.expect("down");
}

async fn agent_is_ready(test: &TestLab, node: &str) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let state = test.lab.agent(node).await.expect("the agent");
        if state.ready == Some(true) {
            return;
        }
        let log = test.lab.logs().join(format!("agent-{node}.log"));
        let log = std::fs::read_to_string(log).unwrap_or_default();
        assert!(
            Instant::now() < deadline,
            "the agent of {node} is not ready: {state:?}\n{log}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
