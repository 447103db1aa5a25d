//! Findings as Kubernetes Events.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Event, Service};
use kube::{Api, Client, api::PostParams};
use reference_agent::{
    events,
    findings::{Finding, Reason},
    ledger::{Origin, Subject},
    model::Kind,
    reports::Reports,
    testing::objects::name,
};
use serde_json::json;
use testing::patience::LIMIT;
use tokio::{sync::mpsc, task::JoinHandle};

use crate::running::Control;

/// What an agent of a node reports, and the task that posts it.
fn poster(client: Client, node: &str) -> (Reports, JoinHandle<()>) {
    let (sender, notices) = mpsc::channel(events::QUEUE);
    let reports = Reports::new(Some(sender));
    let posting = events::post(client, node.to_owned(), notices, reports.clone());
    (reports, tokio::spawn(posting))
}

fn finding(reason: Reason, message: &str) -> Vec<Finding> {
    let message = message.to_owned();
    vec![Finding { reason, message }]
}

fn service(service: &str) -> Subject {
    Subject::Object(Kind::Service, name(service))
}

async fn until_outcome(reports: &Reports, outcome: &str, count: u64) {
    let begin = Instant::now();
    while reports.metrics.events.at([outcome]).get() < count {
        assert!(begin.elapsed() < LIMIT, "{}", reports.metrics.encode());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn create(client: &Client, service: &str) -> String {
    let api: Api<Service> = Api::namespaced(client.clone(), "default");
    let object = json!({"metadata": {"name": service}, "spec": {"ports": [{"port": 80}]}});
    let object = serde_json::from_value(object).expect("a Service");
    let created = api
        .create(&PostParams::default(), &object)
        .await
        .expect("created");
    created.metadata.uid.expect("a uid")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finding_becomes_one_event_of_its_object_however_many_nodes_find_it() {
    let control = Control::start();
    let client = control.client().await;
    let uid = create(&client, "x").await;
    let message = "spec.externalIPs[0]: 127.0.0.1 is loopback; left out";
    let mut posters = Vec::new();
    for node in ["node1", "node2"] {
        let (reports, task) = poster(control.client().await, node);
        reports.ledger.set(
            service("default/x"),
            Origin::Read,
            finding(Reason::FrontendRefused, message),
        );
        until_outcome(&reports, "posted", 1).await;
        posters.push((reports, task));
    }
    let events: Api<Event> = Api::namespaced(client, "default");
    let list = events
        .list(&kube::api::ListParams::default())
        .await
        .expect("a list");
    let [event] = list.items.as_slice() else {
        panic!("one Event, not {:#?}", list.items);
    };
    assert_eq!(event.involved_object.kind.as_deref(), Some("Service"));
    assert_eq!(event.involved_object.name.as_deref(), Some("x"));
    assert_eq!(event.involved_object.uid.as_deref(), Some(uid.as_str()));
    assert_eq!(event.reason.as_deref(), Some("FrontendRefused"));
    assert_eq!(event.message.as_deref(), Some(message));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.reporting_instance.as_deref(), Some("node1"));

    // What only one node can tell is told of each.
    for (reports, _) in &posters {
        let full = finding(Reason::NotWritten, "map FRONTENDS is full");
        reports.ledger.set(service("default/x"), Origin::Planned, full);
        until_outcome(reports, "posted", 2).await;
    }
    let list = events
        .list(&kube::api::ListParams::default())
        .await
        .expect("a list");
    let mut messages: Vec<_> = list.items.into_iter().filter_map(|event| event.message).collect();
    messages.sort();
    assert_eq!(
        messages,
        [
            "on node node1: map FRONTENDS is full",
            "on node node2: map FRONTENDS is full",
            message
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_api_server_posting_fails_and_nothing_waits_for_it() {
    let mut control = Control::start();
    let client = control.client().await;
    control.stop().await;
    let (reports, _task) = poster(client, "node1");
    for index in 0..2 * events::QUEUE {
        let subject = service(&format!("default/x{index}"));
        reports.ledger.set(
            subject,
            Origin::Read,
            finding(Reason::Malformed, "spec.ports: left out"),
        );
    }
    assert_eq!(
        reports.metrics.findings.at(["Malformed"]).get(),
        2 * i64::try_from(events::QUEUE).expect("small")
    );
    assert!(
        reports.metrics.events.at(["dropped"]).get() > 0,
        "the queue is bounded"
    );
    until_outcome(&reports, "failed", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_is_gone_gets_no_event_and_long_messages_are_cut() {
    let control = Control::start();
    let client = control.client().await;
    create(&client, "x").await;
    let (reports, _task) = poster(control.client().await, "node1");
    reports.ledger.set(
        service("default/gone"),
        Origin::Read,
        finding(Reason::Malformed, "spec"),
    );
    let long = "é".repeat(2000);
    reports.ledger.set(
        service("default/x"),
        Origin::Read,
        finding(Reason::Malformed, &long),
    );
    until_outcome(&reports, "posted", 1).await;
    let events: Api<Event> = Api::namespaced(client, "default");
    let list = events
        .list(&kube::api::ListParams::default())
        .await
        .expect("a list");
    let [event] = list.items.as_slice() else {
        panic!("one Event, not {:#?}", list.items);
    };
    let message = event.message.as_deref().expect("a message");
    assert!(
        message.len() <= 1024 && message.ends_with('…'),
        "{} bytes",
        message.len()
    );
}
