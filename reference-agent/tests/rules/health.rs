//! Health checks at load balancers' addresses.

use reference_agent::{
    model::{Event, Host, Model, Policy, Service},
    testing::objects::service,
};

use super::support::{findings, frontend, ips, marked, model};

fn checked(ports: &[&str]) -> Service {
    let mut object = service("t/x", "10.96.0.1", ports);
    object.external_policy = Policy::Local;
    object.load_balancer_ips = ips("198.51.100.7");
    object.health_check_port = Some(32000);
    object
}

fn host(addresses: &str) -> Event {
    Event::Host(Host {
        addresses: ips(addresses).into_iter().collect(),
        probe: None,
    })
}

fn asked(model: &Model) -> Option<String> {
    frontend(model, "TCP 198.51.100.7:32000")
}

#[test]
fn this_host_answers_at_its_lowest_address_and_services_follow_it() {
    let mut model = model([Event::ServiceApplied(checked(&["TCP 80"]))]);
    assert_eq!(asked(&model), None, "nobody is here to answer");
    let mut step = |addresses, marks: &[&str], answers: Option<&str>| {
        let dirty = model.apply(host(addresses));
        assert_eq!(marked(&model, &dirty), marks);
        assert_eq!(asked(&model).as_deref(), answers);
    };
    step("10.1.0.2 10.1.0.3", &["node", "t/x"], Some("10.1.0.2:32000@"));
    step("10.1.0.2 10.1.0.3", &["node"], Some("10.1.0.2:32000@"));
    step("10.1.0.3", &["node", "t/x"], Some("10.1.0.3:32000@"));
    step("fd00:1::1", &["node", "t/x"], None);
    model.apply(Event::ServiceDeleted(reference_agent::testing::objects::name(
        "t/x",
    )));
    let dirty = model.apply(host("10.1.0.2"));
    assert_eq!(marked(&model, &dirty), ["node"]);
}

#[test]
fn a_port_of_the_services_own_goes_before_and_so_does_another_services() {
    let own = checked(&["TCP 32000"]);
    let mut model = model([host("10.1.0.2"), Event::ServiceApplied(own)]);
    assert_eq!(asked(&model).as_deref(), Some("refused"));

    model.apply(Event::ServiceApplied(checked(&["UDP 32000"])));
    assert_eq!(asked(&model).as_deref(), Some("10.1.0.2:32000@"));

    let mut other = service("t/y", "10.96.0.2", &["TCP 32000"]);
    other.external_ips = ips("198.51.100.7");
    model.apply(Event::ServiceApplied(other));
    assert_eq!(asked(&model).as_deref(), Some("refused"));
    assert_eq!(
        findings(&model, "t/x"),
        [
            "FrontendTaken: spec.healthCheckNodePort: TCP 198.51.100.7:32000 is Service t/y's, which comes first; left out"
        ]
    );
}
