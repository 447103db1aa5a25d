//! The mutants omit frontends at external addresses, each where something else is missing.

use mutants::external_frontends::{Depends, ExternalFrontends};
use reference_agent::{
    control::Planner,
    maps::Contents,
    model::Service,
    plan::Perspective,
    testing::{
        World,
        objects::{service, slice},
    },
};

/// Whether the external IP, the load balancer's address and the cluster IP are served, with this node port and endpoint.
fn served(depends: Depends, node_port: Option<u16>, endpoint: &str) -> [bool; 3] {
    let perspective = Perspective {
        node: "here".to_owned(),
        ..Perspective::default()
    };
    let planner = ExternalFrontends::new(Planner::new(perspective), depends);
    let mut world = World::with(planner, &Contents::default());
    world.sync();
    let mut shop = Service {
        external_ips: vec!["192.0.2.1".parse().expect("an address")],
        load_balancer_ips: vec!["192.0.2.2".parse().expect("an address")],
        ..service("t/x", "10.96.0.1", &["TCP 80"])
    };
    shop.ports[0].node_port = node_port;
    world.put_service(shop);
    world.put_slice(slice("t/1", "x", &["TCP 80"], &[endpoint]));
    world.assert_clean();
    ["192.0.2.1", "192.0.2.2", "10.96.0.1"]
        .map(|address| world.serves(&format!("TCP {address}:80")).is_some())
}

#[test]
fn without_a_backend_here_external_addresses_are_not_served() {
    let depends = Depends::LocalBackend;
    assert_eq!(served(depends, None, "1.1.1.1@here"), [true; 3]);
    assert_eq!(
        served(depends, Some(30_000), "1.1.1.1@there"),
        [false, false, true]
    );
}

#[test]
fn without_a_node_port_external_addresses_are_not_served() {
    let depends = Depends::NodePort;
    assert_eq!(served(depends, Some(30_000), "1.1.1.1@there"), [true; 3]);
    assert_eq!(served(depends, None, "1.1.1.1@here"), [false, false, true]);
}
