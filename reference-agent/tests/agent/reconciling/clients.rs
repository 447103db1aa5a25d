//! Who is of the cluster: there while a Node says so, whatever ranges Services have.

use reference_agent::{
    maps::memory::Capacities,
    model::{Event, Node},
    resolve,
};
use rstest::rstest;

use super::{endpoints, fresh, range, ranged, restart_unchanged, section, world};

const SOURCES: [&str; 1] = ["10.1.0.2/32"];

fn node(name: &str, address: &str, pods: &[&str]) -> Event {
    Event::NodeApplied(Node {
        name: name.to_owned(),
        zone: None,
        addresses: vec![address.parse().expect("an address")],
        internal: vec![address.parse().expect("an address")],
        pods: pods.iter().map(|text| range(text)).collect(),
    })
}

fn of_node() -> Event {
    node("a", "10.1.0.2", &["10.244.1.0/24", "fd00:244:1::/64"])
}

#[test]
fn clients_of_the_cluster_come_change_and_go() {
    let mut world = world();
    let steps: [(Event, &[&str]); 4] = [
        (of_node(), &["10.1.0.2/32", "10.244.1.0/24", "fd00:244:1::/64"]),
        (
            node("a", "10.1.0.2", &["10.244.2.0/24"]),
            &["10.1.0.2/32", "10.244.2.0/24"],
        ),
        (node("b", "10.1.0.2", &[]), &["10.1.0.2/32", "10.244.2.0/24"]),
        (Event::NodeDeleted("a".to_owned()), &["10.1.0.2/32"]),
    ];
    for (event, expected) in steps {
        world.event(event);
        assert_eq!(section(&world, "cluster"), expected);
        world.assert_clean();
    }
    world.event(Event::NodeDeleted("b".to_owned()));
    assert_eq!(world.contents().sources, []);
    world.assert_clean();
}

/// The same range may be a Service's and the cluster's: neither goes with the other.
#[test]
fn ranges_of_services_are_others() {
    let mut world = world();
    world.event(of_node());
    world.put_service(ranged(&SOURCES));
    world.put_slice(endpoints(&["10.0.0.7"]));
    assert_eq!(world.contents().sources.len(), 4);
    let events = || {
        vec![
            of_node(),
            Event::ServiceApplied(ranged(&SOURCES)),
            Event::SliceApplied(endpoints(&["10.0.0.7"])),
        ]
    };
    restart_unchanged(&world, events());
    world.event(Event::NodeDeleted("a".to_owned()));
    assert_eq!(section(&world, "cluster"), [""; 0]);
    assert_eq!(
        section(&world, "frontends")[2],
        "TCP 198.51.100.7:80 -> 10.0.0.7:8080 (only from 10.1.0.2/32)"
    );
    world.event(of_node());
    world.delete_service("t/x");
    assert_eq!(section(&world, "cluster").len(), 3);
    assert_eq!(world.contents().sources.len(), 3);
    world.assert_clean();
}

#[test]
fn an_agent_that_starts_removes_what_nodes_do_not_say_any_more() {
    let mut before = world();
    before.event(of_node());
    let mut restarted = reference_agent::testing::World::with(super::planner(), &before.contents());
    restarted.event(node("a", "10.1.0.2", &[]));
    assert_eq!(
        restarted.contents(),
        before.contents(),
        "not before all is listed"
    );
    restarted.sync();
    assert_eq!(section(&restarted, "cluster"), ["10.1.0.2/32"]);
    restarted.assert_clean();
}

/// Each write of a change fails once.
#[rstest]
fn what_fails_is_tried_again(#[values(0, 1, 2, 3)] at: usize) {
    let mut world = world();
    world.event(node("a", "10.1.0.2", &["10.244.2.0/24"]));
    world.faults().script((0..=at).map(|index| index == at));
    world.event(of_node());
    world.faults().script([]);
    world.settle();
    assert_eq!(
        reference_agent::dump::dump(&world.contents()),
        fresh(vec![of_node()])
    );
    world.assert_clean();
}

#[test]
fn clients_that_do_not_fit_are_told_and_keep_nothing_else_out() {
    let mut world = world();
    world.faults().inner_mut().set_capacities(Capacities {
        sources: 1,
        ..Capacities::default()
    });
    world.control.apply(of_node());
    assert!(!world.settle_within(4), "they fit");
    assert_eq!(resolve::clients(&world.contents()).len(), 1);
    let [trouble] = &world.control.troubles()[..] else {
        panic!("{:?}", world.control.troubles())
    };
    assert!(
        trouble.starts_with("the node itself is not written after ")
            && trouble.ends_with("map SOURCES is full (1 entries)"),
        "{trouble}"
    );
    world.control.apply(Event::SliceApplied(endpoints(&["10.0.0.7"])));
    world.control.apply(Event::ServiceApplied(super::balanced()));
    assert!(!world.settle_within(4), "they fit");
    assert_eq!(section(&world, "frontends").len(), 3);
    world.assert_lawful();
    world.faults().inner_mut().set_capacities(Capacities::default());
    world.settle();
    assert_eq!(section(&world, "cluster").len(), 3);
    world.assert_clean();
}
