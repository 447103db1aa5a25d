//! API servers that stop, start and answer wrongly, and the controllers behind them.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use cluster::{ApiFault, Clients, ClusterError, Fault, Place, Refusal, Stop, users};
use futures::StreamExt;
use k8s_openapi::api::{
    core::v1::{Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, ResourceExt,
    api::{PostParams, WatchEvent, WatchParams},
};
use lab::{Advertise, ControlPlane};
use oracle::history::{Outcome, Transport};
use serde_json::json;
use tokio::time::timeout;

use super::support::{LIMIT, TestLab, is_ready, node};

/// Longer than any fault in these tests.
const LASTS: Duration = Duration::from_secs(300);

fn servers(servers: u8, advertise: Advertise) -> ControlPlane {
    ControlPlane {
        servers,
        advertise,
        programs: None,
    }
}

/// The addresses in an EndpointSlice.
fn addresses(slice: EndpointSlice) -> Vec<String> {
    let endpoints = slice.endpoints.into_iter().flatten();
    let mut addresses: Vec<String> = endpoints.flat_map(|endpoint| endpoint.addresses).collect();
    addresses.sort();
    addresses
}

/// Waits until `default/kubernetes` shows these addresses.
async fn kubernetes_shows(client: &Client, expected: &[&str]) {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let deadline = Instant::now() + LIMIT;
    loop {
        let shown = addresses(slices.get("kubernetes").await.expect("default/kubernetes"));
        if shown == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{shown:?}, expected {expected:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a server answers at an address: a busy machine may miss the limit of one attempt.
async fn comes_to_answer(test: &TestLab, from: &Place, address: &str, what: &str) {
    let deadline = Instant::now() + LIMIT;
    while !answers(test, from, address).await {
        assert!(Instant::now() < deadline, "nobody answers at {address}: {what}");
    }
}

/// Whether a server answers at an address: TLS answers a line of JSON with an alert.
async fn answers(test: &TestLab, from: &Place, address: &str) -> bool {
    let outcome = test.dial(from, Transport::Tcp, address, 6443).await;
    matches!(outcome, Outcome::Garbled { .. })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_stops_leaves_default_kubernetes_and_comes_back() {
    let up = TestLab::up_with("two-apis", |config| {
        config.control_plane = servers(2, Advertise::Own);
    });
    let Some(test) = up.await else {
        return;
    };
    let client = test.lab.cluster().client();
    kubernetes_shows(&client, &["172.30.0.2", "172.30.0.3"]).await;
    for (number, own) in [("1", "172.30.0.2:6443"), ("2", "172.30.0.3:6443")] {
        let underlay = "sed -n 's/.*\"server\": \"https:..\\(.*\\)\".*/\\1/p' $KUBECONFIG";
        let (_, asked) = test.shell(&node(&format!("node{number}")), underlay).await;
        assert_eq!(asked, own, "nodes ask them by turns");
    }
    let down = ApiFault::Down {
        server: 1,
        how: Stop::Term,
    };
    let held = test.control_plane().begin(&down, LASTS).await.expect("stopped");
    kubernetes_shows(&client, &["172.30.0.3"]).await;
    assert!(!answers(&test, &node("node1"), "172.30.0.2").await);
    for _ in 0..3 {
        let what = "the front passes over the one that is down";
        comes_to_answer(&test, &Place::Outside, "172.30.0.9", what).await;
    }
    let all = test.control_plane().servers().await.expect("servers");
    let running: Vec<(u8, bool)> = all.iter().map(|server| (server.number, server.running)).collect();
    assert_eq!(running, [(1, false), (2, true)]);
    let status = test.lab.status().await.expect("status");
    assert_eq!(status.api_faults.len(), 1);
    assert_eq!(status.api_faults[0].fault, down);

    let twice = test
        .control_plane()
        .begin(&down, LASTS)
        .await
        .expect_err("it is down");
    assert!(twice.to_string().contains("is down already"), "{twice}");
    let none = ApiFault::Down {
        server: 3,
        how: Stop::Term,
    };
    match test.control_plane().begin(&none, LASTS).await {
        Err(error) => assert_eq!(error, ClusterError::not_found("API server", "3")),
        Ok(lease) => panic!("expected that there is no such API server, found {lease:?}"),
    }

    held.end().await.expect("started");
    kubernetes_shows(&client, &["172.30.0.2", "172.30.0.3"]).await;
    comes_to_answer(&test, &node("node1"), "172.30.0.2", "it is back").await;
    let status = test.lab.status().await.expect("status");
    assert!(status.api_faults.is_empty(), "{:?}", status.api_faults);
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_share_an_address_empty_default_kubernetes_when_one_stops() {
    let up = TestLab::up_with("shared", |config| {
        config.control_plane = servers(2, Advertise::Shared);
    });
    let Some(test) = up.await else {
        return;
    };
    let client = test.lab.cluster().client();
    kubernetes_shows(&client, &["172.30.0.9"]).await;
    let down = ApiFault::Down {
        server: 2,
        how: Stop::Term,
    };
    // The other server writes it again within ten seconds: only a watch reliably sees the empty state.
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let version = slices.get("kubernetes").await.expect("default/kubernetes");
    let version = version.resource_version().expect("a version");
    let only = WatchParams::default().fields("metadata.name=kubernetes");
    let mut events = pin!(slices.watch(&only, &version).await.expect("a watch"));
    let held = test.control_plane().begin(&down, LASTS).await.expect("stopped");
    let emptied = async {
        loop {
            match events.next().await {
                Some(Ok(WatchEvent::Modified(slice))) if addresses(slice.clone()).is_empty() => return,
                Some(Ok(_)) => {}
                other => panic!("expected default/kubernetes without addresses, found {other:?}"),
            }
        }
    };
    timeout(LIMIT, emptied).await.expect("emptied");
    let what = "the load balancer has another one";
    comes_to_answer(&test, &node("node1"), "172.30.0.9", what).await;
    // The server writes it again at its start.
    held.end().await.expect("started");
    kubernetes_shows(&client, &["172.30.0.9"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_ends_with_whoever_holds_it_and_when_its_time_is_over() {
    let Some(test) = TestLab::up("held").await else {
        return;
    };
    let refuse = ApiFault::Answers {
        server: None,
        clients: Clients::User(users::OUTSIDE.to_owned()),
        fault: Fault::Refuse {
            refusal: Refusal::TooManyRequests,
            retry_after: None,
        },
    };
    let none_is_left = async || {
        let deadline = Instant::now() + LIMIT;
        loop {
            let status = test.lab.status().await.expect("status");
            if status.api_faults.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "{:?}", status.api_faults);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let held = test.control_plane().begin(&refuse, LASTS).await.expect("begun");
    assert_eq!(test.lab.status().await.expect("status").api_faults.len(), 1);
    drop(held);
    none_is_left().await;

    let short = Duration::from_millis(50);
    let held = test.control_plane().begin(&refuse, short).await.expect("begun");
    none_is_left().await;
    let error = held.end().await.expect_err("it is over already");
    assert!(error.to_string().contains("its time was"), "{error}");

    let long = Duration::from_secs(601);
    let error = test
        .control_plane()
        .begin(&refuse, long)
        .await
        .expect_err("too long");
    assert!(error.to_string().contains("at most 600s, found 601s"), "{error}");
}

/// The status of a request from a place, with its kubeconfig.
async fn status(test: &TestLab, place: &Place) -> String {
    let ask = "curl -s -k -o /dev/null -w '%{http_code}' -H \"Authorization: Bearer \
               $(sed -n 's/.*\"token\": \"\\(.*\\)\".*/\\1/p' $KUBECONFIG)\" \
               $(sed -n 's/.*\"server\": \"\\(.*\\)\".*/\\1/p' $KUBECONFIG)/api/v1/namespaces";
    test.shell(place, ask).await.1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_meets_whom_it_names_and_never_the_administrator() {
    let Some(test) = TestLab::up("whom").await else {
        return;
    };
    for place in [node("node1"), node("node2"), Place::Outside] {
        assert_eq!(status(&test, &place).await, "200", "{place:?}");
    }
    let refuse = |clients| ApiFault::Answers {
        server: None,
        clients,
        fault: Fault::Refuse {
            refusal: Refusal::Unavailable,
            retry_after: None,
        },
    };
    let one = refuse(Clients::User(users::node("node1")));
    let held = test.control_plane().begin(&one, LASTS).await.expect("begun");
    assert_eq!(status(&test, &node("node1")).await, "503");
    assert_eq!(status(&test, &node("node2")).await, "200");
    held.end().await.expect("over");
    let other = refuse(Clients::Source("172.30.0.102".parse().expect("an address")));
    let held = test.control_plane().begin(&other, LASTS).await.expect("begun");
    assert_eq!(status(&test, &node("node1")).await, "200");
    assert_eq!(status(&test, &node("node2")).await, "503");
    held.end().await.expect("over");
    let held = test
        .control_plane()
        .begin(&refuse(Clients::All), LASTS)
        .await
        .expect("begun");
    for place in [node("node1"), node("node2"), Place::Outside] {
        assert_eq!(status(&test, &place).await, "503", "{place:?}");
    }
    let version = test.lab.cluster().client().apiserver_version().await;
    version.expect("the administrator meets no fault");
    let pods = test.pods().list(&kube::api::ListParams::default()).await;
    pods.expect("the administrator meets no fault");
    held.end().await.expect("over");
    assert_eq!(status(&test, &node("node2")).await, "200");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controllers_bind_pods_write_slices_and_give_addresses() {
    let Some(test) = TestLab::up("controllers").await else {
        return;
    };
    for name in ["a", "b"] {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"containers": [{
                "name": "c", "image": "probe", "args": ["serve", "--name", name, "--tcp", "8080"],
            }]},
        }))
        .expect("a pod");
        test.create(&pod).await;
    }
    let mut nodes = Vec::new();
    for name in ["a", "b"] {
        let pod = test.pod(name, is_ready).await;
        nodes.push(pod.spec.and_then(|spec| spec.node_name).expect("bound"));
    }
    nodes.sort();
    assert_eq!(nodes, ["node1", "node2"], "by turns");
    let services: Api<Service> = Api::namespaced(test.lab.cluster().client(), "default");
    let service = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }))
    .expect("a Service");
    services
        .create(&PostParams::default(), &service)
        .await
        .expect("created");
    let slices: Api<EndpointSlice> = Api::namespaced(test.lab.cluster().client(), "default");
    let deadline = Instant::now() + LIMIT;
    loop {
        let service = services.get("web").await.expect("the Service");
        let balancer = service.status.and_then(|status| status.load_balancer);
        let ingress = balancer.and_then(|balancer| balancer.ingress).unwrap_or_default();
        let given: Vec<_> = ingress.into_iter().filter_map(|one| one.ip).collect();
        let all = slices
            .list(&kube::api::ListParams::default())
            .await
            .expect("slices");
        let ours = all.iter().filter(|slice| slice.name_any().starts_with("web-"));
        let ready = ours
            .flat_map(|slice| slice.endpoints.iter().flatten())
            .filter(|endpoint| {
                endpoint
                    .conditions
                    .as_ref()
                    .is_some_and(|conditions| conditions.ready == Some(true))
            })
            .count();
        if given == ["172.30.1.1"] && ready == 2 {
            return;
        }
        assert!(Instant::now() < deadline, "{given:?}, {ready} ready endpoints");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
