//! Where cluster IPs are from: told to the programs, as the API, a folder or the command line says it.

use std::{fs, net::IpAddr};

use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use lb_abi::Address;
use reference_agent::{
    datapath::Datapath as _,
    endpoint_address::Range,
    folder::Folder,
    model::{Event, Model},
    testing::node::Node,
};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    place::Place,
    running::{Control, Running, create_service, dumped, eventually, until_dump},
    unlisted::Refusing,
};

async fn create(client: &Client, name: &str, cidr: &str) {
    let object = json!({"metadata": {"name": name}, "spec": {"cidrs": [cidr]}});
    let object = serde_json::from_value(object).expect("an object");
    let api: Api<ServiceCIDR> = Api::all(client.clone());
    api.create(&PostParams::default(), &object)
        .await
        .expect("created");
}

async fn delete(client: &Client, name: &str) {
    let api: Api<ServiceCIDR> = Api::all(client.clone());
    api.delete(name, &DeleteParams::default()).await.expect("deleted");
}

async fn until_ranges(node: &Node, expected: &[&str]) {
    eventually(|| async {
        let seen: Vec<String> = node.service_ranges().iter().map(Range::to_string).collect();
        (seen == expected).then_some(()).ok_or(format!("{seen:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_programs_are_told_them_as_they_come_and_go_and_keep_them_while_no_agent_runs() {
    let control = Control::start();
    let (node, client) = (Node::new(), control.client().await);
    let agent = Running::start(&control, &node).await;
    agent.until_readyz((200, "ok\n")).await;
    until_ranges(&node, &["10.96.0.0/16"]).await;
    create(&client, "more", "10.97.0.0/16").await;
    until_ranges(&node, &["10.96.0.0/16", "10.97.0.0/16"]).await;
    agent.stop().await;
    delete(&client, "more").await;
    until_ranges(&node, &["10.96.0.0/16", "10.97.0.0/16"]).await;
    let agent = Running::start(&control, &node).await;
    until_ranges(&node, &["10.96.0.0/16"]).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_for_which_there_is_no_room_are_findings_of_their_objects() {
    let control = Control::start();
    let (node, client) = (Node::new(), control.client().await);
    for third in 0..4 {
        create(&client, &format!("c{third}"), &format!("10.99.{third}.0/24")).await;
    }
    let agent = Running::start(&control, &node).await;
    until_ranges(
        &node,
        &["10.96.0.0/16", "10.99.0.0/24", "10.99.1.0/24", "10.99.2.0/24"],
    )
    .await;
    let findings = || async { agent.get("/findings").await.map(|(_, text)| text) };
    let expected = "servicecidr c3: ServiceRangesClipped: spec.cidrs: expected at most 4 ranges in all; 10.99.3.0/24 is not \
                    among the largest, and what no Service has there is not refused\n";
    assert_eq!(findings().await.as_deref(), Some(expected));
    delete(&client, "c0").await;
    until_ranges(
        &node,
        &["10.96.0.0/16", "10.99.1.0/24", "10.99.2.0/24", "10.99.3.0/24"],
    )
    .await;
    eventually(|| async {
        let found = findings().await;
        (found.as_deref() == Some(""))
            .then_some(())
            .ok_or(format!("{found:?}"))
    })
    .await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_without_service_cidrs_has_none_and_the_agent_is_ready() {
    let server = Refusing::start().await;
    server.refuse(
        "servicecidrs",
        404,
        "NotFound",
        "the server could not find the requested resource",
    );
    let node = Node::new();
    let agent = Running::start_with(&server.client, &node).await;
    agent.until_readyz((200, "ok\n")).await;
    until_ranges(&node, &[]).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_may_not_read_them_says_so_and_serves_nevertheless() {
    let server = Refusing::start().await;
    let forbidden = "servicecidrs.networking.k8s.io is forbidden";
    server.refuse("servicecidrs", 403, "Forbidden", forbidden);
    let node = Node::new();
    let agent = Running::start_with(&server.client, &node).await;
    let why = format!("the API server answers 403 Forbidden: {forbidden}");
    agent.until_unlisted(&[("servicecidrs", &why)]).await;
    assert!(
        agent.reports.readiness.is_healthy(),
        "what comes to this node is served"
    );
    server.allow("servicecidrs");
    agent.until_readyz((200, "ok\n")).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_programs_cannot_be_told_is_said_and_tried_again() {
    let control = Control::start();
    let node = Node::new();
    node.refuse_ranges(true);
    let agent = Running::start(&control, &node).await;
    let why = "the programs are not told the Service ranges: failed to put CONFIG: Operation not permitted (os error 1)\n";
    agent.until_readyz((503, why)).await;
    create_service(&control.client().await, "x", "10.96.1.1").await;
    until_dump(&node, &dumped(&["TCP 10.96.1.1:80 -> refused"], &["10.96.1.1"])).await;
    node.refuse_ranges(false);
    until_ranges(&node, &["10.96.0.0/16"]).await;
    agent.until_readyz((200, "ok\n")).await;
    agent.stop().await;
}

#[test]
fn they_may_be_in_a_folder() {
    let folder = TempDir::new().expect("a folder");
    let text = "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: kubernetes}\n\
                spec: {cidrs: [10.96.0.0/12, nowhere]}\n";
    fs::write(folder.path().join("a.yaml"), text).expect("written");
    let reading = Folder::open(folder.path())
        .expect("a folder")
        .read_once()
        .expect("read");
    let mut model = Model::default();
    for event in reading.events {
        model.apply(event);
    }
    let found = model.service_ranges().expect("they are known").ranges;
    assert_eq!(
        found.iter().map(Range::to_string).collect::<Vec<_>>(),
        ["10.96.0.0/12"]
    );
    let [(subject, finding)] = &reading.findings[..] else {
        panic!("{:?}", reading.findings)
    };
    assert_eq!(
        format!("{subject}: {finding}"),
        "servicecidr kubernetes: Malformed: spec.cidrs[1]: expected a range such as 10.96.0.0/12, found \"nowhere\"; left out"
    );
    model.apply(Event::ServiceCidrDeleted("kubernetes".to_owned()));
    assert_eq!(model.service_ranges().expect("they are known").ranges, []);
}

#[test]
fn in_the_kernel_they_stay_through_a_restart() {
    let Some(place) = Place::new("in_the_kernel_they_stay_through_a_restart") else {
        return;
    };
    let range = |text: &str| {
        let net: ipnet::IpNet = text.parse().expect("a range");
        Range::new(net.addr(), net.prefix_len()).expect("a range")
    };
    let address = |text: &str| Address::from(text.parse::<IpAddr>().expect("an address"));
    let told = || {
        let maps = lb_loader::read_pinned(place.bpffs()).expect("pinned maps");
        let config = maps.config().expect("readable").expect("it is there");
        ["10.96.0.1", "fd00:96::1", "10.97.0.1"].map(|text| {
            config
                .service_ranges
                .iter()
                .any(|range| range.contains(address(text)))
        })
    };
    let mut datapath = place.open();
    let both = [range("10.96.0.0/16"), range("fd00:96::/112")];
    datapath.set_service_ranges(&both).expect("told");
    assert_eq!(told(), [true, true, false]);
    drop(datapath);
    let mut datapath = place.open();
    assert_eq!(told(), [true, true, false]);
    datapath.set_service_ranges(&both[..1]).expect("told");
    assert_eq!(told(), [true, false, false]);
}
