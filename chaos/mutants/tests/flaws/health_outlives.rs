//! A helper is started for each health check node port.

use mutants::health_outlives::HealthOutlives;
use reference_agent::{
    control::{DesiredState, Planner},
    model::{Event, Service},
    plan::Perspective,
    testing::objects::service,
};

#[test]
fn each_health_check_node_port_gets_a_helper_once() {
    let mut ports = Vec::new();
    let mut desired = HealthOutlives::new(Planner::new(Perspective::default()), |port| ports.push(port));
    for (name, health_check_port) in [
        ("t/x", Some(30_048)),
        ("t/y", None),
        ("t/x", Some(30_048)),
        ("t/z", Some(30_049)),
    ] {
        desired.apply(Event::ServiceApplied(Service {
            health_check_port,
            ..service(name, "10.96.0.1", &["TCP 80"])
        }));
    }
    drop(desired);
    assert_eq!(ports, [30_048, 30_049]);
}
