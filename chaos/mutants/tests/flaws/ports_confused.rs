//! The mutant confuses ports of one number or of one name; those that share neither are right.

use mutants::ports_confused::{Confused, PortsConfused};
use reference_agent::{
    control::Planner,
    maps::Contents,
    testing::{
        World,
        objects::{addresses, service, slice},
    },
};

fn world(confused: Confused) -> World<PortsConfused> {
    let mut world = World::with(
        PortsConfused::new(Planner::default(), confused),
        &Contents::default(),
    );
    world.sync();
    world
}

#[test]
fn udp_has_the_backends_of_tcp_where_they_share_a_number() {
    let mut world = world(Confused::Protocols);
    world.put_slice(slice("t/1", "x", &["TCP 8080 t"], &["1.1.1.1"]));
    world.put_slice(slice("t/2", "x", &["UDP 8080 u", "UDP 8080 v"], &["1.1.1.2"]));
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80 t", "UDP 80 u", "UDP 81 v"]));
    world.assert_clean();
    for (frontend, by) in [
        ("TCP 10.96.0.1:80", "TCP 1.1.1.1:8080"),
        ("UDP 10.96.0.1:80", "UDP 1.1.1.1:8080"),
        ("UDP 10.96.0.1:81", "UDP 1.1.1.2:8080"),
    ] {
        assert_eq!(world.serves(frontend), Some(addresses(&[by])), "{frontend}");
    }
}

/// Whether each family of a Service of both is served, with an endpoint in both, or in IPv4 alone.
fn served(confused: Confused, both: bool) -> [bool; 2] {
    let mut world = world(confused);
    world.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.1"]));
    let six: &[&str] = if both { &["2001:db8::1"] } else { &[] };
    world.put_slice(slice("t/2", "x", &["TCP 80"], six));
    world.put_service(service("t/x", "10.96.0.1,fd00::1", &["TCP 80"]));
    world.assert_clean();
    ["TCP 10.96.0.1:80", "TCP [fd00::1]:80"]
        .map(|frontend| world.serves(frontend).is_some_and(|by| !by.is_empty()))
}

#[test]
fn a_family_without_endpoints_ends_the_other_one() {
    assert_eq!(served(Confused::Families, true), [true, true]);
    assert_eq!(served(Confused::Families, false), [false, false]);
    assert_eq!(served(Confused::Protocols, false), [true, false]);
}

#[test]
fn the_second_family_is_left_out() {
    assert_eq!(served(Confused::SecondFamily, true), [true, false]);
}
