//! A Service with 100,000 endpoints: clipped, with a finding, without an effect on others.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use k8s_openapi::api::{
    core::v1::{Event, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};

use crate::{
    agent::{self, Node, Serving},
    network::{FAMILIES, Network, pod},
    objects::{Everything, PORTS, cluster_ips, create_node, put},
    place::place,
    sockets::{LIMIT, ask, serve},
};

/// Slices, and endpoints of each: as many as Kubernetes allows in one.
const SLICES: u32 = 100;
const EACH: u32 = 1000;
/// What SERVICES.md promises of a set.
const TAKEN: u32 = 16_384;
/// Bytes that the agent may need for each endpoint that the API has: twice the 460 that were measured.
const PER_ENDPOINT: u64 = 1024;

fn endpoint(number: u32) -> IpAddr {
    const FIRST: u32 = u32::from_be_bytes([10, 128, 0, 0]);
    Ipv4Addr::from(FIRST + number).into()
}

fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "crowd", "namespace": "default"},
        "spec": {"clusterIP": "10.96.2.1", "clusterIPs": ["10.96.2.1"], "ports": [{"port": 80, "targetPort": 8080}]},
    })
}

/// With these endpoints.
fn slice(number: u32, endpoints: impl Iterator<Item = u32>) -> (String, Value) {
    let name = format!("crowd-{number}");
    let endpoints: Vec<Value> = endpoints
        .map(|number| json!({"addresses": [endpoint(number)], "nodeName": "there"}))
        .collect();
    let object = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": "crowd"},
        },
        "addressType": "IPv4", "ports": [{"name": "", "port": 8080}], "endpoints": endpoints,
    });
    (name, object)
}

fn slices(client: &Client) -> Api<EndpointSlice> {
    Api::namespaced(client.clone(), "default")
}

/// The dump's line of the crowd with these backends.
fn line(backends: impl Iterator<Item = u32>) -> String {
    let backends = backends.map(|number| format!(" {}:8080", endpoint(number)));
    format!("TCP 10.96.2.1:80 ->{}", backends.collect::<String>())
}

/// Looks until the crowd's line of the dump is this one.
#[track_caller]
fn until_line(node: &Node, expected: &str) {
    node.eventually(|| {
        let dump = node.dump();
        let found = dump.lines().find(|line| line.starts_with("TCP 10.96.2.1:80 "));
        let words = |line: &str| line.split(' ').count();
        match found {
            Some(found) if found == expected => Ok(()),
            Some(found) => Err(format!("{} words instead of {}", words(found), words(expected))),
            None => Err("no line".to_owned()),
        }
    });
}

#[test]
fn a_hundred_thousand_endpoints_are_clipped_and_named_and_disturb_nobody() {
    let Some(place) = place() else { return };
    let _network = Network::new();
    let family = FAMILIES[0];
    pod(0).run(move || serve(family.pods[0]));
    let api = agent::Api::new();
    let Serving { address, .. } = api.serve("127.0.0.1:0".parse().expect("an address"), &["127.0.0.1"]);
    let other = Everything {
        name: "other",
        number: 1,
        spec: json!({}),
        backends: vec![(FAMILIES.map(|family| family.pods[0]), true)],
    };
    api.with(address, async |client| {
        create_node(&client).await;
        other.create(&client).await;
        let services: Api<Service> = Api::namespaced(client.clone(), "default");
        put(&services, "crowd", &service()).await;
    });
    let node = Node::new(&place, true);
    let agent = node.start(&api.kubeconfig(address), &[]);
    agent.ready();
    let before = agent.peak_memory();
    let vip = SocketAddr::new(cluster_ips(1)[0], PORTS[0]);
    let over = AtomicBool::new(false);
    let clients = || {
        let mut answers = 0;
        while !over.load(Ordering::Relaxed) {
            let answer = ask(family.node, vip, LIMIT);
            assert!(
                answer
                    .as_ref()
                    .is_ok_and(|answer| answer.server == family.pods[0]),
                "after {answers} answers: {answer:?}"
            );
            answers += 1;
        }
        answers
    };
    thread::scope(|scope| {
        let asking = scope.spawn(clients);
        api.with(address, async |client| {
            for number in 0..SLICES {
                let (name, object) = slice(number, number * EACH..(number + 1) * EACH);
                put(&slices(&client), &name, &object).await;
            }
        });
        until_line(&node, &line(0..TAKEN));
        let finding = "service default/crowd: EndpointsClipped: endpoints of port TCP (IPv4): expected at most 16384, \
                       found 100000; those of the highest addresses are left out\n";
        node.eventually(|| match agent.get("/findings") {
            Some((200, found)) if found == finding => Ok(()),
            other => Err(format!("{other:?}")),
        });
        let (_, metrics) = agent.get("/metrics").expect("metrics");
        assert!(
            metrics.contains("\nplumbline_findings{reason=\"EndpointsClipped\"} 1\n"),
            "{metrics}"
        );
        let log = node.log();
        let named = |line: &&str| line.contains("service=default/crowd") && line.contains("EndpointsClipped");
        assert!(log.lines().any(|line| named(&line)), "{log}");
        api.with(address, async |client| {
            let events: Api<Event> = Api::namespaced(client, "default");
            let of_crowd = ListParams::default().fields("involvedObject.name=crowd,reason=EndpointsClipped");
            let events = events.list(&of_crowd).await.expect("a list");
            assert!(!events.items.is_empty());
        });
        agent.ready();
        let grown = agent.peak_memory() - before;
        assert!(
            grown < PER_ENDPOINT * u64::from(SLICES * EACH),
            "{grown} bytes for {} endpoints",
            SLICES * EACH
        );

        // The first one goes, and the next address takes its place.
        api.with(address, async |client| {
            let (name, object) = slice(0, 1..EACH);
            put(&slices(&client), &name, &object).await;
        });
        until_line(&node, &line(1..=TAKEN));
        api.with(address, async |client| {
            let all = ListParams::default().labels("kubernetes.io/service-name=crowd");
            slices(&client)
                .delete_collection(&DeleteParams::default(), &all)
                .await
                .expect("deleted");
        });
        until_line(&node, "TCP 10.96.2.1:80 -> refused");
        node.eventually(|| match agent.get("/findings") {
            Some((200, found)) if found.is_empty() => Ok(()),
            other => Err(format!("{other:?}")),
        });
        over.store(true, Ordering::Relaxed);
        let answers = asking.join().expect("everybody was served");
        assert!(answers > 0);
        println!(
            "{answers} answers meanwhile; {} KiB more at the most",
            (agent.peak_memory() - before) >> 10
        );
    });
}
