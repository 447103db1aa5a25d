//! Labs with IPv6 and with both families.

use cluster::{Capability, Place};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use lab::IpFamilies;
use oracle::history::{Outcome, Stage, Transport};
use serde_json::json;

use super::{
    support::{TestLab, in_pod, name, node},
    traces::Traces,
};

const TRANSPORTS: [Transport; 3] = [Transport::Tcp, Transport::Udp, Transport::UdpConnected];

async fn up(test: &str, families: IpFamilies) -> Option<TestLab> {
    TestLab::up_with(test, |config| config.families = families).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dual_stack_lab_reaches_every_pod_and_host_by_both_families_with_true_addresses() {
    let Some(test) = up("dual", IpFamilies::Dual).await else {
        return;
    };
    let b1 = test.servers_addresses("b1", "node1", false).await;
    let b2 = test.servers_addresses("b2", "node2", false).await;
    let h1 = test.servers_addresses("h1", "node1", true).await;
    assert_eq!(b1, ["10.244.1.2", "fd00:244:1::2"]);
    assert_eq!(h1, ["172.30.0.101", "fd00:30::65"]);
    let node2 = ["172.30.0.102", "fd00:30::66"].map(str::to_owned).to_vec();
    let places = [
        (in_pod("b1"), &b1),
        (in_pod("b2"), &b2),
        (node("node1"), &h1),
        (node("node2"), &node2),
    ];
    for (from, own) in places {
        for (to, addresses) in [("b1", &b1), ("b2", &b2), ("h1", &h1)] {
            for (address, own) in addresses.iter().zip(own) {
                for transport in TRANSPORTS {
                    let outcome = test.dial(&from, transport, address, 8080).await;
                    let Outcome::Answered { answer, .. } = outcome else {
                        panic!("{from:?} to {address} by {transport:?}: {outcome:?}")
                    };
                    assert!(answer.identity.starts_with(to), "{}", answer.identity);
                    assert_eq!(answer.source.ip().to_string(), *own, "{from:?} to {address}");
                    assert_eq!(answer.destination.ip().to_string(), *address);
                }
            }
        }
    }
    for address in &h1 {
        let outcome = test.dial(&Place::Outside, Transport::Tcp, address, 8080).await;
        assert!(
            matches!(outcome, Outcome::Answered { .. }),
            "{address}: {outcome:?}"
        );
    }
    let traces = Traces::of(&name("dual"));
    test.lab.down().await.expect("down");
    traces.are_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_has_what_the_families_of_a_lab_are() {
    let cases = [
        ("only6", IpFamilies::Ipv6, vec!["IPv6"], vec!["fd00:244:1::/64"]),
        (
            "both",
            IpFamilies::Dual,
            vec!["IPv4", "IPv6"],
            vec!["10.244.1.0/24", "fd00:244:1::/64"],
        ),
    ];
    for (test, families, expected, cidrs) in cases {
        let Some(test) = up(test, families).await else {
            return;
        };
        let description = test.lab.cluster().describe();
        for (family, capability) in [("IPv4", Capability::Ipv4), ("IPv6", Capability::Ipv6)] {
            let has = description.capabilities.contains(&capability);
            assert_eq!(has, expected.contains(&family), "{families:?}: {family}");
        }
        let nodes: Api<Node> = Api::all(test.lab.cluster().client());
        let nodes = nodes
            .list(&ListParams::default())
            .await
            .expect("list nodes")
            .items;
        for (object, described) in nodes.iter().zip(&description.nodes) {
            let addresses = object
                .status
                .clone()
                .and_then(|status| status.addresses)
                .unwrap_or_default();
            let internal: Vec<_> = addresses
                .into_iter()
                .filter(|address| address.type_ == "InternalIP")
                .map(|address| address.address)
                .collect();
            let described: Vec<_> = described.addresses.iter().map(ToString::to_string).collect();
            assert_eq!(internal, described);
            assert_eq!(internal.len(), expected.len());
        }
        assert_eq!(
            nodes[0]
                .spec
                .clone()
                .and_then(|spec| spec.pod_cidrs)
                .unwrap_or_default(),
            cidrs
        );

        let service = json!({
            "metadata": {"name": "s"},
            "spec": {"ipFamilyPolicy": "PreferDualStack", "ports": [{"port": 80}]},
        });
        let service: Service = serde_json::from_value(service).expect("a Service");
        let services: Api<Service> = Api::namespaced(test.lab.cluster().client(), "default");
        let made = services
            .create(&PostParams::default(), &service)
            .await
            .expect("create");
        let spec = made.spec.expect("a spec");
        assert_eq!(spec.ip_families.unwrap_or_default(), expected);
        assert_eq!(spec.cluster_ips.unwrap_or_default().len(), expected.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lab_of_ipv6_alone_has_its_api_server_there_and_silence_at_untranslated_addresses() {
    let Some(test) = up("six", IpFamilies::Ipv6).await else {
        return;
    };
    let addresses = test.servers_addresses("b1", "node1", false).await;
    assert_eq!(addresses, ["fd00:244:1::2"]);
    let underlay = "sed -n 's/.*\"server\": \"https:..\\(.*\\)\".*/\\1/p' $KUBECONFIG";
    let (_, address) = test.shell(&node("node1"), underlay).await;
    assert_eq!(address, "[fd00:30::2]:6443");
    for from in [node("node2"), in_pod("b1"), Place::Outside] {
        // The address has a TLS server, which answers a line of JSON with an alert.
        if from != in_pod("b1") {
            let outcome = test.dial(&from, Transport::Tcp, "fd00:30::2", 6443).await;
            assert!(
                matches!(outcome, Outcome::Garbled { .. }),
                "{from:?}: {outcome:?}"
            );
        }
        let outcome = test.dial(&from, Transport::Tcp, "fd00:96::1", 443).await;
        let silent = |stage| Outcome::Timeout { stage };
        assert_eq!(outcome, silent(Stage::Handshake), "{from:?}");
        let outcome = test.dial(&from, Transport::UdpConnected, "fd00:96::1", 53).await;
        assert_eq!(outcome, silent(Stage::Receive), "{from:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_names_pod_node_and_zone() {
    let Some(test) = TestLab::up_with("zones", |config| config.nodes = 3).await else {
        return;
    };
    for (pod, on, zone) in [
        ("b1", "node1", "zone-a"),
        ("b2", "node2", "zone-b"),
        ("b3", "node3", "zone-a"),
    ] {
        let address = test.server(pod, on, false).await;
        let outcome = test.dial(&node("node1"), Transport::Tcp, &address, 8080).await;
        let Outcome::Answered { answer, .. } = outcome else {
            panic!("{outcome:?}")
        };
        let told = answer.pod.expect("it was told who it is");
        let uid = test.pods().get(pod).await.expect("the pod").metadata.uid;
        assert_eq!(Some(told.uid), uid);
        assert_eq!(
            (told.name.as_str(), told.node.as_str(), told.zone.as_str()),
            (pod, on, zone)
        );
        let nodes: Api<Node> = Api::all(test.lab.cluster().client());
        let labels = nodes
            .get(on)
            .await
            .expect("the node")
            .metadata
            .labels
            .unwrap_or_default();
        assert_eq!(
            labels.get("topology.kubernetes.io/zone").map(String::as_str),
            Some(zone)
        );
    }
}
