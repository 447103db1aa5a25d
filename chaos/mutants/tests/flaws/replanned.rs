//! Plans with a bug differ from the production agent's where the bug is, and nowhere else.

use std::net::TcpListener;

use lb_abi::address_flags::LOAD_BALANCER;
use mutants::replanned::{
    Replanned, balancers_unreserved, closed_ports_dropped, silent_outside, target_ports_served,
};
use reference_agent::{
    control::Planner,
    endpoint_address::{Backend, Family, Protocol},
    maps::Contents,
    model::Service,
    plan::{PortId, PortName, PortPlan, ServicePlan},
    testing::{
        World,
        objects::{address, service, slice},
    },
};

/// Maps with a Service that has an address of a load balancer and these endpoints.
fn world(change: fn(&mut ServicePlan), port: &str, endpoints: &[&str]) -> World<Replanned> {
    let mut world = World::with(Replanned::new(Planner::default(), change), &Contents::default());
    world.sync();
    world.put_service(Service {
        load_balancer_ips: vec!["192.0.2.9".parse().expect("an address")],
        ..service("t/x", "10.96.0.1", &["TCP 80"])
    });
    world.put_slice(slice("t/1", "x", &[port], endpoints));
    world
}

#[test]
fn a_cluster_ip_alone_also_serves_at_target_ports() {
    let world = world(target_ports_served, "TCP 8080", &["10.0.0.1"]);
    let backends = world.serves("TCP 10.96.0.1:80").expect("a frontend");
    assert_eq!(backends, [address("TCP 10.0.0.1:8080")].into());
    assert_eq!(world.serves("TCP 10.96.0.1:8080"), Some(backends));
    assert_eq!(world.serves("TCP 192.0.2.9:8080"), None);
}

#[test]
fn an_address_of_a_load_balancer_is_not_the_agents_beyond_its_frontends() {
    let flags = |change| {
        let contents = world(change, "TCP 8080", &["10.0.0.1"]).contents();
        let addresses = contents.addresses.into_iter();
        addresses.filter(|(_, flags)| *flags == LOAD_BALANCER).count()
    };
    assert_eq!((flags(|_| ()), flags(balancers_unreserved)), (1, 0));
}

#[test]
fn only_without_endpoints_and_only_outside_connections_are_silent() {
    let silent = |endpoints| {
        let world = world(silent_outside, "TCP 8080", endpoints);
        let contents = world.contents();
        let silent = contents
            .frontends
            .iter()
            .filter(|(_, frontend)| frontend.flags & lb_abi::frontend_flags::SILENT != 0);
        silent.count()
    };
    assert_eq!((silent(&[]), silent(&["10.0.0.1"])), (1, 0));
}

#[test]
fn an_endpoint_is_dropped_if_its_port_is_closed() {
    let open = TcpListener::bind("127.0.0.1:0").expect("a port");
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let [open, shut] = [&open, &closed].map(|one| one.local_addr().expect("an address").port());
    drop(closed);
    let id = PortId {
        name: PortName::Of("".into()),
        protocol: Protocol::Tcp,
        family: Family::V4,
    };
    let of = |port: u16| {
        let backend = Backend {
            address: address(&format!("TCP 127.0.0.1:{port}")),
            local: true,
        };
        let of_port = PortPlan {
            cluster: [backend].into(),
            ..PortPlan::default()
        };
        let mut plan = ServicePlan {
            ports: [(id.clone(), of_port)].into(),
            ..ServicePlan::default()
        };
        closed_ports_dropped(&mut plan);
        let backends = plan.ports.into_values().flat_map(|port| port.cluster);
        backends
            .map(|backend| backend.address.address.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (of(open), of(shut)),
        (vec!["127.0.0.1".to_owned()], vec!["192.0.2.1".to_owned()])
    );
}
