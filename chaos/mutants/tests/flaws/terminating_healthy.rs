//! The mutant counts endpoints that are terminating.

use mutants::terminating_healthy::TerminatingHealthy;
use reference_agent::{
    control::{DesiredState, Planner},
    model::{Event, Policy, Service},
    plan::Perspective,
    testing::objects::{name, service, slice},
};

/// Endpoints that the health check counts, of one that is ready or only serving.
fn counted(mut desired: impl DesiredState, ready: bool) -> usize {
    desired.apply(Event::ServiceApplied(Service {
        external_policy: Policy::Local,
        health_check_port: Some(30_048),
        load_balancer_ips: vec!["192.0.2.1".parse().expect("an address")],
        ..service("t/x", "10.96.0.1", &["TCP 80"])
    }));
    let mut listed = slice("t/1", "x", &["TCP 80"], &["1.1.1.1@here"]);
    listed.endpoints[0].ready = ready;
    listed.endpoints[0].terminating = !ready;
    desired.apply(Event::SliceApplied(listed));
    let id = desired.model().id(&name("t/x")).expect("the Service");
    let check = desired.plan_service(id).health_check;
    check.expect("a health check").local_endpoints
}

#[test]
fn what_only_terminates_is_counted() {
    let planner = || {
        Planner::new(Perspective {
            node: "here".to_owned(),
            ..Perspective::default()
        })
    };
    assert_eq!([true, false].map(|ready| counted(planner(), ready)), [1, 0]);
    assert_eq!(
        [true, false].map(|ready| counted(TerminatingHealthy(planner()), ready)),
        [1, 1]
    );
}
