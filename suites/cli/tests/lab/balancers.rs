//! Load balancers: which outside clients reach their addresses, for each policy and family, through the reference
//! agent.

use std::time::{Duration, Instant};

use cluster::Place;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{Api, api::PostParams};
use lab::{AgentCommand, IpFamilies};
use oracle::history::{Outcome, Transport};
use serde_json::json;

use super::support::{LIMIT, TestLab, agent_is_ready, is_ready};

async fn up(test: &str, families: IpFamilies) -> Option<TestLab> {
    let test = TestLab::up_with(test, |config| {
        config.families = families;
        let program = config.plumbline.with_file_name("reference-agent");
        config.agent = AgentCommand::of_target("reference", Some(&program)).expect("built");
    })
    .await?;
    for node in ["node1", "node2"] {
        agent_is_ready(&test.lab, node).await;
    }
    Some(test)
}

impl TestLab {
    async fn backend(&self, name: &str, node: &str) {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"nodeName": node, "containers": [{
                "name": "c", "image": "probe", "args": ["serve", "--name", name, "--tcp", "8080"],
            }]},
        }))
        .expect("a pod");
        self.create(&pod).await;
        self.pod(name, is_ready).await;
    }

    /// Makes a Service of type LoadBalancer in front of all backends; returns its addresses.
    async fn balancer(&self, policy: &str) -> Vec<String> {
        let services: Api<Service> = Api::namespaced(self.lab.cluster().client(), "default");
        let service = serde_json::from_value(json!({
            "metadata": {"name": "web"},
            "spec": {
                "type": "LoadBalancer", "externalTrafficPolicy": policy, "ipFamilyPolicy": "PreferDualStack",
                "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}],
            },
        }))
        .expect("a Service");
        services
            .create(&PostParams::default(), &service)
            .await
            .expect("created");
        let deadline = Instant::now() + LIMIT;
        loop {
            let service = services.get("web").await.expect("the Service");
            let balancer = service.status.and_then(|status| status.load_balancer);
            let ingress = balancer.and_then(|balancer| balancer.ingress).unwrap_or_default();
            let given: Vec<String> = ingress.into_iter().filter_map(|one| one.ip).collect();
            if !given.is_empty() {
                return given;
            }
            assert!(Instant::now() < deadline, "no address within {LIMIT:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Connects from outside until the outcome is the wanted one.
    async fn outside(&self, address: &str, what: &str, wanted: impl Fn(&Outcome) -> bool) -> Outcome {
        let deadline = Instant::now() + LIMIT;
        loop {
            let outcome = self.dial(&Place::Outside, Transport::Tcp, address, 80).await;
            if wanted(&outcome) {
                return outcome;
            }
            assert!(
                Instant::now() < deadline,
                "{address}: expected {what}, found {outcome:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn is_from(outcome: &Outcome, backend: &str) -> bool {
    matches!(outcome, Outcome::Answered { answer, .. } if answer.identity.starts_with(backend))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_leads_to_every_backend_by_every_node_in_both_families() {
    let Some(test) = up("vip", IpFamilies::Dual).await else {
        return;
    };
    test.backend("b1", "node1").await;
    test.backend("b2", "node2").await;
    let given = test.balancer("Cluster").await;
    assert_eq!(given, ["172.30.1.1", "fd00:31::1"]);
    for address in &given {
        for backend in ["b1/", "b2/"] {
            test.outside(address, backend, |outcome| is_from(outcome, backend))
                .await;
        }
    }
    test.lab.down().await.expect("down");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_local_policy_only_nodes_with_a_ready_endpoint_are_asked_and_see_the_client() {
    let Some(test) = up("vip-local", IpFamilies::Ipv4).await else {
        return;
    };
    test.backend("b1", "node1").await;
    let given = test.balancer("Local").await;
    let first = test
        .outside(&given[0], "b1", |outcome| is_from(outcome, "b1/"))
        .await;
    let Outcome::Answered { answer, .. } = first else {
        unreachable!("answered")
    };
    assert_eq!(answer.source.ip().to_string(), "172.30.0.10");
    // A connection forwarded to the other node would be lost there.
    for _ in 0..20 {
        let outcome = test
            .dial_within(&Place::Outside, Transport::Tcp, &given[0], 80, LIMIT)
            .await;
        assert!(is_from(&outcome, "b1/"), "{outcome:?}");
    }
    test.backend("b2", "node2").await;
    test.pods()
        .delete("b1", &kube::api::DeleteParams::default().grace_period(0))
        .await
        .expect("deleted");
    test.outside(&given[0], "b2", |outcome| is_from(outcome, "b2/"))
        .await;
    test.pods()
        .delete("b2", &kube::api::DeleteParams::default().grace_period(0))
        .await
        .expect("deleted");
    test.outside(&given[0], "silence", |outcome| {
        matches!(outcome, Outcome::Timeout { .. })
    })
    .await;
    test.lab.down().await.expect("down");
}
