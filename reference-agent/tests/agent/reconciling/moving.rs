//! UDP frontends that pass to another service port, or to none.

use reference_agent::{
    control::Planner,
    maps::Contents,
    model::{Event, Host, Policy, Service},
    reconcile::{DEPARTED_LIMIT, MovedFrontend},
    testing::{
        World,
        objects::{address, addresses, name, service, slice},
    },
};

use super::planner;

const NODE_PORT: &str = "UDP 0.0.0.0:30053";
const BALANCER: &str = "UDP 198.51.100.7:53";
const HERE: &str = "192.0.2.1";

/// A Service with UDP and TCP on one port.
fn dns(name: &str, cluster_ip: &str) -> Service {
    service(name, cluster_ip, &["UDP 53 dns", "TCP 53 dns-tcp"])
}

/// The same with a node port and a load balancer.
fn exposed(name: &str, cluster_ip: &str) -> Service {
    let mut service = dns(name, cluster_ip);
    for port in &mut service.ports {
        port.node_port = Some(30053);
    }
    service.load_balancer_ips = vec!["198.51.100.7".parse().expect("an address")];
    service
}

/// `t/a` is exposed, `t/b` is not; each has a backend of its own, and one that both have.
fn two() -> World<Planner> {
    let mut world = World::with(planner(), &Contents::default());
    tell(&mut world, exposed("t/a", "10.96.0.10"), dns("t/b", "10.96.0.11"));
    world.sync();
    assert_eq!(moved(&mut world), [], "a start moves nothing");
    world
}

fn tell(world: &mut World<Planner>, a: Service, b: Service) {
    let ports = ["UDP 5353 dns", "TCP 5353 dns-tcp"];
    world.put_slice(slice("t/1", "a", &ports, &["10.0.0.1", "10.0.0.9"]));
    world.put_slice(slice("t/2", "b", &ports, &["10.0.0.2", "10.0.0.9"]));
    world.put_service(a);
    world.put_service(b);
}

fn moved(world: &mut World<Planner>) -> Vec<MovedFrontend> {
    let moved = world.control.take_changes().moved;
    assert_eq!(moved.unlisted, 0);
    moved.listed
}

fn to(frontend: &str, backends: &[&str]) -> MovedFrontend {
    MovedFrontend {
        frontend: address(frontend),
        backends: addresses(backends),
    }
}

/// The backends of `t/b`.
const OF_B: [&str; 2] = ["UDP 10.0.0.2:5353", "UDP 10.0.0.9:5353"];
/// The backends of `t/a`.
const OF_A: [&str; 2] = ["UDP 10.0.0.1:5353", "UDP 10.0.0.9:5353"];

#[test]
fn udp_frontends_move_to_another_service_and_to_nobody() {
    let mut world = two();
    world.put_service(dns("t/a", "10.96.0.10"));
    assert_eq!(moved(&mut world), [to(NODE_PORT, &[]), to(BALANCER, &[])]);
    assert_eq!(moved(&mut world), [], "it is told once");
    world.put_service(exposed("t/b", "10.96.0.11"));
    assert_eq!(moved(&mut world), [], "they were nobody's");
    world.assert_clean();
}

#[test]
fn a_frontend_that_another_service_takes_at_once_has_its_backends() {
    let mut world = two();
    let older = |name: &str, ip: &str, created| {
        let mut service = exposed(name, ip);
        service.created = created;
        service
    };
    world.put_service(older("t/a", "10.96.0.10", Some(20)));
    assert_eq!(moved(&mut world), []);
    world.put_service(older("t/b", "10.96.0.11", Some(10)));
    assert_eq!(moved(&mut world), [to(NODE_PORT, &OF_B), to(BALANCER, &OF_B)]);
    world.put_service(dns("t/b", "10.96.0.11"));
    assert_eq!(moved(&mut world), [to(NODE_PORT, &OF_A), to(BALANCER, &OF_A)]);
    world.assert_clean();
}

#[test]
fn a_change_of_policies_affinity_or_backends_moves_nothing() {
    let mut world = two();
    for change in [
        |service: &mut Service| service.external_policy = Policy::Local,
        |service: &mut Service| service.affinity_seconds = 60,
        |service: &mut Service| service.external_policy = Policy::Cluster,
    ] {
        let mut changed = exposed("t/a", "10.96.0.10");
        change(&mut changed);
        world.put_service(changed);
        world.put_slice(slice("t/1", "a", &["UDP 5353 dns"], &["10.0.0.7"]));
        assert_eq!(moved(&mut world), []);
    }
}

/// It is the same service port by its name: what came by the node port goes on, by the same number.
#[test]
fn a_service_port_that_gets_another_number_keeps_its_node_port() {
    let mut world = two();
    let node_port = |world: &World<Planner>| {
        let frontends = world.contents().frontends;
        frontends
            .into_iter()
            .find(|(key, _)| *key == address(NODE_PORT).frontend_key())
    };
    let before = node_port(&world);
    let mut renumbered = exposed("t/a", "10.96.0.10");
    for port in &mut renumbered.ports {
        port.port = 9000;
    }
    world.put_service(renumbered);
    let changes = world.control.take_changes();
    assert_eq!(changes.departed.listed, []);
    // Where it is not any more.
    let vip = "UDP 10.96.0.10:53";
    assert_eq!(changes.moved.listed, [to(BALANCER, &[]), to(vip, &[])]);
    assert!(before.is_some() && node_port(&world) == before);
    world.assert_clean();
}

/// The port that loses a frontend gets new backends in the same round, and with them another number.
#[test]
fn a_frontend_that_stays_while_its_service_port_gets_another_number_does_not_move() {
    let mut world = two();
    let before = world.contents().services;
    world.put_slice_unsettled(slice("t/1", "a", &["UDP 5353 dns"], &["10.0.0.7"]));
    world.put_service(dns("t/a", "10.96.0.10"));
    assert_eq!(moved(&mut world), [to(NODE_PORT, &[]), to(BALANCER, &[])]);
    assert_ne!(world.contents().services, before);
}

#[test]
fn a_service_that_is_deleted_takes_its_frontends_along() {
    let mut world = two();
    world.delete_service("t/b");
    assert_eq!(moved(&mut world), [to("UDP 10.96.0.11:53", &[])]);
}

#[test]
fn a_frontend_moves_when_it_is_written_and_not_before() {
    let mut world = two();
    world.faults().script([true; 4]);
    world
        .control
        .apply(Event::ServiceApplied(dns("t/a", "10.96.0.10")));
    assert!(!world.settle_within(0), "nothing failed");
    assert_eq!(moved(&mut world), []);
    world.faults().script([]);
    world.settle();
    assert_eq!(moved(&mut world), [to(NODE_PORT, &[]), to(BALANCER, &[])]);
}

/// The first look of a restarted agent.
fn restarted(found: &Contents, a: Service, b: Service) -> Vec<MovedFrontend> {
    let mut world = World::with(planner(), found);
    tell(&mut world, a, b);
    world.sync();
    let moved = moved(&mut world);
    world.assert_clean();
    moved
}

#[test]
fn a_frontend_that_moved_while_the_agent_was_down_has_moved() {
    let found = two().contents();
    let [a, b] = [("t/a", "10.96.0.10"), ("t/b", "10.96.0.11")];
    assert_eq!(restarted(&found, exposed(a.0, a.1), dns(b.0, b.1)), []);
    assert_eq!(
        restarted(&found, dns(a.0, a.1), exposed(b.0, b.1)),
        [to(NODE_PORT, &OF_B), to(BALANCER, &OF_B)]
    );
    assert_eq!(
        restarted(&found, dns(a.0, a.1), dns(b.0, b.1)),
        [to(NODE_PORT, &[]), to(BALANCER, &[])]
    );
    let mut local = exposed(a.0, a.1);
    local.external_policy = Policy::Local;
    assert_eq!(restarted(&found, local, dns(b.0, b.1)), []);
}

#[test]
fn at_an_address_of_this_node_a_frontend_and_a_node_port_take_turns() {
    let mut world = two();
    world.event(Event::Host(Host {
        addresses: [HERE.parse().expect("an address")].into(),
        probe: None,
    }));
    moved(&mut world);
    let mut other = dns("t/b", "10.96.0.11");
    for port in &mut other.ports {
        port.port = 30053;
    }
    other.external_ips = vec![HERE.parse().expect("an address")];
    world.put_service(other);
    let at = "UDP 192.0.2.1:30053";
    let led: Vec<_> = moved(&mut world)
        .into_iter()
        .filter(|one| one.frontend == address(at))
        .collect();
    assert_eq!(led, [to(at, &OF_B)]);
    world.put_service(dns("t/b", "10.96.0.11"));
    let led: Vec<_> = moved(&mut world)
        .into_iter()
        .filter(|one| one.frontend == address(at))
        .collect();
    assert_eq!(led, [to(at, &OF_A)], "the node port answers there again");
}

#[test]
fn more_than_can_be_listed_are_counted() {
    let maps = reference_agent::maps::memory::MemoryMaps::new();
    let mut control =
        reference_agent::control::Control::new(planner(), maps).expect("maps in memory can be read");
    let now = std::time::Instant::now();
    for event in reference_agent::testing::synced() {
        control.apply(event);
    }
    const EACH: usize = DEPARTED_LIMIT / 2 + 7;
    for (index, name) in ["t/a", "t/b"].into_iter().enumerate() {
        let mut service = service(name, "", &["UDP 53"]);
        let ips = (0..EACH).map(|ip| format!("10.{index}.{}.{}", ip / 250, ip % 250 + 1));
        service.external_ips = ips.map(|ip| ip.parse().expect("an address")).collect();
        control.apply(Event::ServiceApplied(service));
    }
    control.reconcile(now);
    assert_eq!(control.take_changes().moved.listed, []);
    for text in ["t/a", "t/b"] {
        control.apply(Event::ServiceDeleted(name(text)));
    }
    control.reconcile(now);
    let moved = control.take_changes().moved;
    assert_eq!((moved.listed.len(), moved.unlisted), (DEPARTED_LIMIT, 14));
}
