//! Load balancers get addresses, keep them, and give them back.

use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client, ResourceExt, api::DeleteParams, runtime::watcher};
use lab_controllers::{ANNOTATION, Balancer, FINALIZER, others, take_back};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::server::{LIMIT, TestServer, until};

fn start(client: Client, range: &str) -> DropGuard {
    let balancer = Balancer::new(client, vec![range.parse().expect("a range")]);
    let stop = CancellationToken::new();
    tokio::spawn(balancer.run(stop.clone()));
    stop.drop_guard()
}

fn spec(kind: &str) -> serde_json::Value {
    json!({"type": kind, "selector": {"app": "web"}, "ports": [{"port": 80}]})
}

/// Addresses in the status, and whether the finalizer is there.
fn state(service: &Service) -> (Vec<String>, bool) {
    let status = service
        .status
        .clone()
        .unwrap_or_default()
        .load_balancer
        .unwrap_or_default();
    let ips = status
        .ingress
        .into_iter()
        .flatten()
        .filter_map(|ingress| ingress.ip)
        .collect();
    (
        ips,
        service
            .finalizers()
            .iter()
            .any(|finalizer| finalizer == FINALIZER),
    )
}

async fn is(server: &TestServer, name: &str, addresses: &[&str], finalizer: bool) -> Service {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let found = until(server.api(), config, |all: &[Service]| match all {
        [service] if state(service) == (addresses.iter().map(|ip| (*ip).to_owned()).collect(), finalizer) => {
            Ok(())
        }
        other => Err(format!("{:?}", other.iter().map(state).collect::<Vec<_>>())),
    });
    found.await.remove(0)
}

async fn gone(server: &TestServer, name: &str) {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    until(server.api(), config, |all: &[Service]| {
        if all.is_empty() {
            Ok(())
        } else {
            Err("it is still there".to_owned())
        }
    })
    .await;
}

#[tokio::test]
async fn an_address_is_given_kept_over_a_restart_and_waited_for() {
    let server = TestServer::own().await;
    let controller = server.own.as_ref().expect("our server").controller.clone();
    let running = start(controller.clone(), "10.0.9.0/30");
    server.service("a", spec("LoadBalancer")).await;
    is(&server, "a", &["10.0.9.1"], true).await;
    let mut asking = spec("LoadBalancer");
    asking["loadBalancerIP"] = "10.0.9.2".into();
    server.service("b", asking).await;
    is(&server, "b", &["10.0.9.2"], true).await;
    let mut other = spec("LoadBalancer");
    other["loadBalancerClass"] = "example.com/other".into();
    server.service("other", other).await;
    server.service("c", spec("LoadBalancer")).await;
    drop(running);
    let _running = start(controller, "10.0.9.0/30");
    let api: Api<Service> = server.api();
    api.delete("a", &DeleteParams::default()).await.expect("deleted");
    gone(&server, "a").await;
    is(&server, "c", &["10.0.9.1"], true).await;
    is(&server, "b", &["10.0.9.2"], true).await;
    is(&server, "other", &[], false).await;
    server
        .patch_service(
            "b",
            json!({"spec": {"type": "ClusterIP", "loadBalancerIP": null}}),
        )
        .await;
    is(&server, "b", &[], false).await;
    for name in ["b", "c", "other"] {
        api.delete(name, &DeleteParams::default()).await.expect("deleted");
        gone(&server, name).await;
    }
    server.end().await;
}

#[tokio::test]
async fn where_the_controller_is_gone_what_it_gave_is_taken_back_and_nothing_of_others() {
    let server = TestServer::own().await;
    let controller = server.own.as_ref().expect("our server").controller.clone();
    let running = start(controller, "10.0.9.0/29");
    for name in ["a", "b"] {
        server.service(name, spec("LoadBalancer")).await;
    }
    is(&server, "a", &["10.0.9.1"], true).await;
    is(&server, "b", &["10.0.9.2"], true).await;
    assert_eq!(others(&server.client).await.expect("an answer"), None);
    drop(running);
    let api: Api<Service> = server.api();
    api.delete("a", &DeleteParams::default())
        .await
        .expect("asked for");
    let kept = api.get("a").await.expect("it waits for its controller");
    assert!(kept.metadata.deletion_timestamp.is_some());
    let elsewhere = take_back(&server.client, Some("kube-system")).await;
    assert_eq!(elsewhere.expect("an answer"), []);
    // Another controller's.
    server.service("c", spec("LoadBalancer")).await;
    let given = json!({"status": {"loadBalancer": {"ingress": [{"ip": "10.0.8.1"}]}}});
    let given = kube::api::Patch::Merge(given);
    api.patch_status("c", &kube::api::PatchParams::default(), &given)
        .await
        .expect("a status");
    let taken = take_back(&server.client, None).await.expect("an answer");
    let names: Vec<&str> = taken.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    gone(&server, "a").await;
    is(&server, "b", &[], false).await;
    is(&server, "c", &["10.0.8.1"], false).await;
    let found = others(&server.client).await.expect("an answer");
    let found = found.expect("another controller");
    assert_eq!(
        (found.0.1.as_str(), found.1.as_slice()),
        ("c", &["10.0.8.1".to_owned()][..])
    );
    assert_eq!(take_back(&server.client, None).await.expect("an answer"), []);
    for name in ["b", "c"] {
        api.delete(name, &DeleteParams::default()).await.expect("deleted");
        gone(&server, name).await;
    }
    server.end().await;
}

#[tokio::test]
async fn after_a_gap_every_service_is_annotated_once_more() {
    let server = TestServer::own().await;
    let own = server.own.as_ref().expect("our server");
    let mut replica = own.replica(std::net::TcpListener::bind("127.0.0.1:0").expect("a port"));
    let _running = start(own.controller_at(&replica).await, "10.0.9.0/29");
    for name in ["a", "b"] {
        server.service(name, spec("LoadBalancer")).await;
    }
    let before = is(&server, "a", &["10.0.9.1"], true).await;
    assert_eq!(before.annotations().get(ANNOTATION), None, "only a gap brings it");
    is(&server, "b", &["10.0.9.2"], true).await;
    let mut last: Vec<Option<String>> = vec![None, None];
    for _ in 0..2 {
        // The controller's server is gone until it has tried to reach it.
        let address = replica.address();
        replica.kill().await;
        let listener = TcpListener::bind(address).await.expect("the same port");
        let tried = tokio::time::timeout(LIMIT, listener.accept()).await;
        drop(tried.expect("in time").expect("a connection"));
        replica = own.replica(listener.into_std().expect("a listener"));
        let annotated = until(server.api(), watcher::Config::default(), |all: &[Service]| {
            let now: Vec<_> = all.iter().map(annotation).collect();
            let new = now.len() == 2
                && now
                    .iter()
                    .zip(&last)
                    .all(|(now, last)| now.is_some() && now != last);
            if new { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
        last = annotated.iter().map(annotation).collect();
    }
    let api: Api<Service> = server.api();
    for name in ["a", "b"] {
        api.delete(name, &DeleteParams::default()).await.expect("deleted");
        gone(&server, name).await;
    }
    replica.stop().await.expect("an orderly end");
    server.end().await;
}

fn annotation(service: &Service) -> Option<String> {
    service.annotations().get(ANNOTATION).cloned()
}
