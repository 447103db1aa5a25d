//! The lab with the reference agent: one Service, end to end, for each family.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{Api, api::PostParams};
use lab::{AgentCommand, IpFamilies};
use oracle::history::{Outcome, Transport};
use serde_json::json;

use super::support::{LIMIT, TestLab, agent_is_ready, answered, in_pod, node};

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

async fn each_cluster_ip_answers_from_its_pod(test: &str, families: IpFamilies) {
    let up = TestLab::up_with(test, |config| {
        config.families = families;
        let program = config.plumbline.with_file_name("reference-agent");
        config.agent = AgentCommand::of_target("reference", Some(&program)).expect("built");
    });
    let Some(test) = up.await else {
        return;
    };
    for node in ["node1", "node2"] {
        agent_is_ready(&test.lab, node).await;
    }

    let backends = test.servers_addresses("b1", "node1", false).await;
    test.server("c2", "node2", false).await;
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
    for address in &addresses {
        answers(&test, address).await;
    }
    test.lab.down().await.expect("down");
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
