//! ADDRESSES, the node itself, the agent's own way, health check node ports.

use std::collections::BTreeSet;

use lb_abi::address_flags::{LOAD_BALANCER, NODE, VIP};
use reference_agent::{
    model::{Event, Host, Model, Node, Policy, Probe},
    names::ObjectId,
    plan::{self, HealthCheck},
    testing::objects::{address, name, service},
};
use rstest::rstest;

use super::support::{
    addresses, frontend, here, ips, marked, model, of_x, planned, served, with_endpoints, x,
};

fn machine(name: &str, addresses: &str) -> Event {
    Event::NodeApplied(Node {
        name: name.to_owned(),
        zone: None,
        addresses: ips(addresses),
        internal: ips(addresses),
        pods: Vec::new(),
    })
}

fn host(addresses: &str, probe: Option<Probe>) -> Event {
    Event::Host(Host {
        addresses: ips(addresses).into_iter().collect(),
        probe,
    })
}

fn api_servers(ip: &str, port: u16) -> Event {
    Event::ApiServers([(ips(ip)[0], port)].into())
}

fn flags(model: &Model, address: &str) -> Option<u32> {
    addresses(model).get(&ips(address)[0]).copied()
}

/// With a load balancer and an external IP.
fn balanced() -> Model {
    let object = x(|service| {
        service.load_balancer_ips = ips("192.0.2.1");
        service.external_ips = ips("198.51.100.1");
        service.ports[0].node_port = Some(30080);
    });
    served(object, [])
}

#[test]
fn what_becomes_of_other_ports_of_an_address_depends_on_whose_it_may_be() {
    let model = balanced();
    assert_eq!(flags(&model, "10.96.0.1"), Some(VIP));
    assert_eq!(
        flags(&model, "192.0.2.1"),
        Some(LOAD_BALANCER),
        "a proxy may have it, whose other ports the cluster uses"
    );
    assert_eq!(flags(&model, "198.51.100.1"), Some(0));
    assert_eq!(
        flags(&model, "0.0.0.0"),
        None,
        "node ports have no address of their own"
    );
}

#[test]
fn a_load_balancers_address_is_a_machines_while_any_node_or_this_host_has_it() {
    let mut model = balanced();
    model.apply(Event::ServiceApplied(service("t/y", "10.96.0.2", &["TCP 80"])));
    let mut step = |event, expected_marks: &[&str], expected| {
        let dirty = model.apply(event);
        assert_eq!(marked(&model, &dirty), expected_marks);
        assert_eq!(flags(&model, "192.0.2.1"), Some(expected));
    };
    step(machine("a", "10.0.0.1"), &["node"], LOAD_BALANCER);
    step(machine("a", "10.0.0.1 192.0.2.1"), &["node", "t/x"], 0);
    step(machine("b", "192.0.2.1"), &["node"], 0);
    step(machine("a", "10.0.0.1"), &["node"], 0);
    step(host("192.0.2.1", None), &["node"], NODE);
    step(Event::NodeDeleted("b".to_owned()), &["node"], NODE);
    step(host("10.0.0.1", None), &["node", "t/x"], LOAD_BALANCER);
}

#[test]
fn flags_of_several_owners_are_joined() {
    let mut model = balanced();
    model.apply(host("10.96.0.1", None));
    let mut other = service("t/y", "10.96.0.2", &["TCP 81"]);
    other.external_ips = ips("10.96.0.1");
    model.apply(Event::ServiceApplied(other));
    assert_eq!(flags(&model, "10.96.0.1"), Some(VIP | NODE));
    let mut third = service("t/z", "10.96.0.3", &["TCP 82"]);
    third.load_balancer_ips = ips("10.96.0.1");
    model.apply(Event::ServiceApplied(third));
    assert_eq!(
        flags(&model, "10.96.0.1"),
        Some(VIP | NODE),
        "this host has the load balancer's address"
    );
    model.apply(Event::ServiceDeleted(name("t/x")));
    assert_eq!(flags(&model, "10.96.0.1"), Some(NODE));
    model.apply(host("", None));
    assert_eq!(flags(&model, "10.96.0.1"), Some(LOAD_BALANCER));
    model.apply(Event::ServiceDeleted(name("t/z")));
    assert_eq!(flags(&model, "10.96.0.1"), Some(0));
}

#[test]
fn an_address_of_which_a_service_has_no_frontend_is_not_its() {
    let mut model = balanced();
    let mut other = service("t/a", "10.96.0.2", &["TCP 80"]);
    other.cluster_ips = ips("198.51.100.1");
    model.apply(Event::ServiceApplied(other));
    let plan = planned(&model, "t/x");
    let its: Vec<_> = plan.addresses.keys().map(ToString::to_string).collect();
    assert_eq!(its, ["10.96.0.1", "192.0.2.1"]);
}

#[test]
fn node_ports_answer_at_the_addresses_of_this_host_and_at_loopback() {
    let model = model([host("10.0.0.1 fd00::1", None), machine("there", "10.0.0.2")]);
    let expected = ips("10.0.0.1 127.0.0.1 ::1 fd00::1")
        .into_iter()
        .map(|address| (address, NODE));
    assert_eq!(addresses(&model), expected.collect());
    let node = plan::plan_service(&model, &here(), ObjectId::NODE);
    assert_eq!(node.addresses.len(), 4);
    assert!(node.ports.is_empty() && node.findings.is_empty());
}

fn probe() -> Option<Probe> {
    Some(Probe {
        frontend: address("TCP 169.254.0.1:9440"),
        backend: address("TCP 10.0.0.1:40000"),
    })
}

#[test]
fn the_probe_is_a_frontend_that_leads_to_the_agent() {
    let mut model = model([host("10.0.0.1", probe())]);
    assert_eq!(
        frontend(&model, "TCP 169.254.0.1:9440").as_deref(),
        Some("10.0.0.1:40000@")
    );
    assert_eq!(
        flags(&model, "169.254.0.1"),
        Some(0),
        "its other ports are nobody's business"
    );
    model.apply(host("10.0.0.1", None));
    assert_eq!(frontend(&model, "TCP 169.254.0.1:9440"), None);
}

#[test]
fn the_probe_takes_no_frontend_from_a_service() {
    let mut model = model([host("10.0.0.1", probe())]);
    let rival = service("t/x", "169.254.0.1", &["TCP 9440"]);
    let dirty = model.apply(Event::ServiceApplied(rival));
    assert_eq!(marked(&model, &dirty), ["node", "t/x"]);
    assert_eq!(
        frontend(&model, "TCP 169.254.0.1:9440").as_deref(),
        Some("refused")
    );
    let node = plan::plan_service(&model, &here(), ObjectId::NODE);
    let told: Vec<_> = node.findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "FrontendTaken: the agent's own probe: TCP 169.254.0.1:9440 is Service t/x's, which comes first; left out"
        ]
    );
    let dirty = model.apply(Event::ServiceDeleted(name("t/x")));
    assert!(dirty.contains(&ObjectId::NODE));
    assert_eq!(
        frontend(&model, "TCP 169.254.0.1:9440").as_deref(),
        Some("10.0.0.1:40000@")
    );
}

#[rstest]
#[case::the_frontend("10.96.0.1", 443, true)]
#[case::another_port("10.96.0.1", 444, false)]
#[case::another_address("10.96.0.2", 443, false)]
fn a_port_with_the_agents_way_to_its_api_server_is_kept(
    #[case] ip: &str,
    #[case] port: u16,
    #[case] kept: bool,
) {
    let object = service("t/x", "10.96.0.1", &["TCP 443 https", "UDP 443 quic"]);
    let model = served(object, []);
    let mut model = model;
    let marked = model.apply(api_servers(ip, port));
    let id = model.id(&name("t/x")).expect("is there");
    assert_eq!(marked.contains(&id), kept);
    let plan = plan::plan_service(&model, &here(), id);
    let keeps: Vec<_> = plan.ports.values().map(|port| port.keep).collect();
    assert_eq!(keeps, [kept, false], "TCP, UDP");
}

#[rstest]
#[case::this_nodes("10.0.0.1", 30443, true)]
#[case::another_port("10.0.0.1", 30444, false)]
#[case::another_nodes("10.0.0.2", 30443, false)]
#[case::nobodys("203.0.113.1", 30443, false)]
#[case::loopback("127.0.0.1", 30443, true)]
#[case::of_this_nodes_other_family("fd00::1", 30443, false)]
fn a_node_port_is_the_agents_way_at_this_nodes_addresses(
    #[case] ip: &str,
    #[case] port: u16,
    #[case] kept: bool,
) {
    let mut object = service("t/x", "10.96.0.1", &["TCP 443 https"]);
    object.ports[0].node_port = Some(30443);
    let mut model = served(object, []);
    let id = model.id(&name("t/x")).expect("is there");
    let keeps = |model: &Model| {
        let plan = plan::plan_service(model, &here(), id);
        plan.ports.values().any(|port| port.keep)
    };
    model.apply(machine("there", "10.0.0.2"));
    model.apply(host("", None));
    model.apply(api_servers(ip, port));
    assert!(!keeps(&model), "this node has no addresses yet");
    let marked = model.apply(host("10.0.0.1 fd00::1", None));
    assert_eq!((keeps(&model), marked.contains(&id)), (kept, kept));
    let marked = model.apply(host("10.0.0.9", None));
    let still = kept && ip == "127.0.0.1";
    assert_eq!((keeps(&model), marked.contains(&id)), (still, kept && !still));
    let marked = model.apply(Event::ApiServers(BTreeSet::new()));
    assert_eq!((keeps(&model), marked.contains(&id)), (false, still));
}

#[rstest]
#[case::counted_by_address(&["1.1.1.1 on:here", "1.1.1.2 on:here", "1.1.1.1 on:here"], 2)]
#[case::those_elsewhere_do_not_count(&["1.1.1.1 on:there", "1.1.1.2"], 0)]
#[case::those_on_their_way_out_do_not_count(&["~1.1.1.1 on:here", "!1.1.1.2 on:here"], 0)]
fn a_health_check_counts_ready_endpoints_here(#[case] endpoints: &[&str], #[case] local_endpoints: usize) {
    let object = x(|service| {
        service.external_policy = Policy::Local;
        service.health_check_port = Some(32000);
    });
    let model = served(object, [of_x("1", endpoints)]);
    assert_eq!(
        planned(&model, "t/x").health_check,
        Some(HealthCheck {
            port: 32000,
            local_endpoints
        })
    );
}

#[test]
fn a_health_check_counts_an_address_of_several_ports_once_and_each_family() {
    let mut object = service("t/x", "10.96.0.1,fd00:96::1", &["TCP 80 http", "TCP 81 admin"]);
    object.health_check_port = Some(32000);
    let ports = reference_agent::testing::objects::slice("t/1", "x", &["TCP 80 http", "TCP 81 admin"], &[]);
    let both = with_endpoints(ports, &["1.1.1.1 on:here", "fd00::1 on:here"]);
    let plan = planned(&served(object, [both]), "t/x");
    assert_eq!(plan.health_check.map(|check| check.local_endpoints), Some(2));
}

#[test]
fn without_a_health_check_port_there_is_no_health_check() {
    assert_eq!(planned(&served(x(|_| ()), []), "t/x").health_check, None);
}
