//! The mutant serves node ports at the node's addresses as frontends of their own.

use mutants::node_ports_taken::NodePortsTaken;
use reference_agent::{
    control::{DesiredState, Planner},
    maps::Contents,
    model::{Event, Host},
    testing::{
        World,
        objects::{service, slice},
    },
};

/// Whether a node port is served by its number alone, and at the node's address.
fn served(desired: impl DesiredState, later: bool) -> [bool; 2] {
    let mut world = World::with(desired, &Contents::default());
    world.sync();
    let mut object = service("t/x", "10.96.0.1", &["TCP 80"]);
    object.ports[0].node_port = Some(30080);
    world.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.1"]));
    let host = Event::Host(Host {
        addresses: ["192.0.2.9".parse().expect("an address")].into(),
        probe: None,
    });
    if later {
        world.put_service(object);
        world.event(host);
    } else {
        world.event(host);
        world.put_service(object);
    }
    world.settle();
    world.assert_clean();
    ["TCP 0.0.0.0:30080", "TCP 192.0.2.9:30080"].map(|frontend| world.serves(frontend).is_some())
}

#[test]
fn a_node_port_is_a_frontend_at_each_address_whichever_comes_first() {
    for later in [false, true] {
        assert_eq!(served(Planner::default(), later), [true, false]);
        assert_eq!(served(NodePortsTaken(Planner::default()), later), [true, true]);
    }
}
