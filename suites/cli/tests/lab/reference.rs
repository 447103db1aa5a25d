//! The lab with the reference agent: one Service, end to end, for each family, and where writes to the kernel fail.

use std::{
    net::SocketAddr,
    num::NonZeroU32,
    time::{Duration, Instant},
};

use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{Api, api::PostParams};
use lab::{AgentCommand, IpFamilies};
use oracle::history::{Outcome, Transport};
use serde_json::json;

use super::support::{LIMIT, TestLab, agent_is_ready, answered, in_pod, node};

const LASTS: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_ip_answers_from_its_pod() {
    each_cluster_ip_answers_from_its_pod("reference", IpFamilies::Ipv4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_cluster_ips_of_a_dual_stack_service_answer_from_its_pod() {
    each_cluster_ip_answers_from_its_pod("reference-dual", IpFamilies::Dual).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ipv6_cluster_ip_answers_from_its_pod_where_there_is_no_ipv4() {
    each_cluster_ip_answers_from_its_pod("reference-six", IpFamilies::Ipv6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_could_not_write_is_written_once_writes_succeed() {
    let Some(test) = up("failing-writes", IpFamilies::Ipv4).await else {
        return;
    };
    let backends = test.servers_addresses("b1", "node1", false).await;
    test.server("c2", "node2", false).await;
    let agents = test.agents();
    let refused = agents.fail_writes("node2", NonZeroU32::new(1)).await;
    let refused = refused.expect_err("it was not started for it").to_string();
    assert!(refused.contains("was not started for it"), "{refused}");

    let held = agents.watch_writes("node2", LASTS).await.expect("started again");
    agent_is_ready(&test.lab, "node2").await;
    assert_eq!(
        agents
            .fail_writes("node2", NonZeroU32::new(1))
            .await
            .expect("all fail"),
        0
    );
    let addresses = create_service(&test, &backends).await;
    let begin = Instant::now();
    let all = NonZeroU32::new(1);
    while agents.fail_writes("node2", all).await.expect("all fail") == 0 {
        assert!(begin.elapsed() < LIMIT, "no write of the agent has failed");
    }
    let outcome = test.dial(&in_pod("c2"), Transport::Tcp, &addresses[0], 80).await;
    assert!(!matches!(outcome, Outcome::Answered { .. }), "{outcome:?}");
    let twice = agents
        .watch_writes("node2", LASTS)
        .await
        .expect_err("it is watched");
    assert!(twice.to_string().contains("it is already"), "{twice}");

    assert!(agents.fail_writes("node2", None).await.expect("none fails") > 0);
    answers(&test, &addresses[0]).await;
    held.end().await.expect("over");
    agents
        .fail_writes("node2", None)
        .await
        .expect_err("it was started without that");
    agent_is_ready(&test.lab, "node2").await;
    answers(&test, &addresses[0]).await;
    test.lab.down().await.expect("down");
}

async fn each_cluster_ip_answers_from_its_pod(test: &str, families: IpFamilies) {
    let Some(test) = up(test, families).await else {
        return;
    };
    let backends = test.servers_addresses("b1", "node1", false).await;
    test.server("c2", "node2", false).await;
    let addresses = create_service(&test, &backends).await;
    for address in &addresses {
        answers(&test, address).await;
    }
    test.lab.down().await.expect("down");
}

/// A lab with the reference agent on each node, ready.
async fn up(test: &str, families: IpFamilies) -> Option<TestLab> {
    let up = TestLab::up_with(test, |config| {
        config.families = families;
        let program = config.plumbline.with_file_name("reference-agent");
        config.agent = AgentCommand::of_target("reference", Some(&program)).expect("built");
    });
    let test = up.await?;
    for node in ["node1", "node2"] {
        agent_is_ready(&test.lab, node).await;
    }
    Some(test)
}

/// Creates a Service with these endpoints, one of each family. Returns its ClusterIPs.
async fn create_service(test: &TestLab, backends: &[String]) -> Vec<String> {
    let ports = json!([
        {"name": "tcp", "protocol": "TCP", "port": 80, "targetPort": 8080},
        {"name": "udp", "protocol": "UDP", "port": 80, "targetPort": 8080},
    ]);
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"ipFamilyPolicy": "PreferDualStack", "ports": ports}});
    let services: Api<Service> = Api::namespaced(test.lab.cluster().client(), "default");
    let service = serde_json::from_value(service).expect("a Service");
    let service = services
        .create(&PostParams::default(), &service)
        .await
        .expect("create a Service");
    let addresses = service
        .spec
        .and_then(|spec| spec.cluster_ips)
        .expect("ClusterIPs");
    assert_eq!(addresses.len(), backends.len());
    let slices: Api<EndpointSlice> = Api::namespaced(test.lab.cluster().client(), "default");
    for (backend, family) in backends.iter().zip(&service_families(&addresses)) {
        let slice = json!({
            "metadata": {"generateName": "s-", "labels": {"kubernetes.io/service-name": "s"}},
            "addressType": family,
            "ports": [
                {"name": "tcp", "protocol": "TCP", "port": 8080},
                {"name": "udp", "protocol": "UDP", "port": 8080},
            ],
            "endpoints": [{"addresses": [backend], "conditions": {"ready": true}}],
        });
        let slice = serde_json::from_value(slice).expect("an EndpointSlice");
        slices
            .create(&PostParams::default(), &slice)
            .await
            .expect("create an EndpointSlice");
    }
    addresses
}

fn service_families(addresses: &[String]) -> Vec<&'static str> {
    let family = |address: &String| if address.contains(':') { "IPv6" } else { "IPv4" };
    addresses.iter().map(family).collect()
}

/// A ClusterIP answers from pod b1, for every client and transport.
async fn answers(test: &TestLab, address: &str) {
    for from in [in_pod("c2"), in_pod("b1"), node("node1"), node("node2")] {
        for (transport, identity) in [
            (Transport::Tcp, "b1/TCP/8080"),
            (Transport::Udp, "b1/UDP/8080"),
            (Transport::UdpConnected, "b1/UDP/8080"),
        ] {
            let deadline = Instant::now() + LIMIT;
            let outcome = loop {
                let outcome = test.dial(&from, transport, address, 80).await;
                if matches!(outcome, Outcome::Answered { .. }) || Instant::now() >= deadline {
                    break outcome;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            assert_eq!(answered(&outcome), identity, "{from:?} {transport:?}");
            let Outcome::Answered { peer, .. } = outcome else {
                unreachable!("answered")
            };
            let asked = SocketAddr::new(address.parse().expect("an address"), 80);
            assert_eq!(peer, asked, "the client sees what it asked for");
        }
    }
}
