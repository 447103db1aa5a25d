//! The mutant removes nothing that an earlier start has written; it handles objects of the API and its own entries like
//! the production agent.

use std::time::Instant;

use mutants::adopted_kept::adopted_kept;
use reference_agent::{
    control::{Control, Planner},
    datapath::Datapath,
    model::Event,
    resolve,
    testing::{
        Served,
        node::Node,
        objects::{address, name, service, slice},
        served, synced,
    },
};

/// A start that gets these events and runs until nothing is left to do.
fn start<D: Datapath>(datapath: &D, events: impl IntoIterator<Item = Event>) -> Control<Planner, D::Maps> {
    let maps = datapath.maps();
    let mut control = Control::new(Planner::default(), maps).expect("maps in memory can be read");
    applied(&mut control, events.into_iter().chain(synced()));
    control
}

fn applied<M: reference_agent::maps::LbMaps>(
    control: &mut Control<Planner, M>,
    events: impl IntoIterator<Item = Event>,
) {
    for event in events {
        control.apply(event);
    }
    control.reconcile(Instant::now());
    while let Some(deadline) = control.deadline() {
        control.reconcile(deadline);
    }
}

/// A Service of one port with these endpoints.
fn shop(name: &str, vip: &str, endpoints: &[&str]) -> [Event; 2] {
    let name = format!("t/{name}");
    [
        Event::ServiceApplied(service(&name, vip, &["TCP 80"])),
        Event::SliceApplied(slice(&name, &name[2..], &["TCP 8080"], endpoints)),
    ]
}

fn clients_of(node: &Node) -> Served {
    served(&resolve::resolve(&node.contents()).0)
}

/// A start with two Services, then one with the datapath `of` a node that gets only one of them, with another backend.
fn restarted<D: Datapath>(of: impl Fn(&Node) -> D) -> Node {
    let node = Node::new();
    let [gone, replaced] = [("gone", "10.96.0.1"), ("shop", "10.96.0.2")];
    start(
        &of(&node),
        [
            shop(gone.0, gone.1, &["10.0.0.1"]),
            shop(replaced.0, replaced.1, &["10.0.0.1"]),
        ]
        .concat(),
    );
    start(&of(&node), shop(replaced.0, replaced.1, &["10.0.0.2"]));
    node
}

#[test]
fn a_service_that_ended_while_it_was_down_is_served_as_before_and_the_others_are_right() {
    let mutated = clients_of(&restarted(|node| adopted_kept(node.open())));
    let production = clients_of(&restarted(Node::open));
    let [gone, replaced] = ["TCP 10.96.0.1:80", "TCP 10.96.0.2:80"].map(address);
    assert_eq!(mutated[&gone], [address("TCP 10.0.0.1:8080")].into());
    assert_eq!(mutated[&replaced], [address("TCP 10.0.0.2:8080")].into());
    assert_eq!(production.keys().collect::<Vec<_>>(), [&replaced]);
    assert_eq!(production[&replaced], mutated[&replaced]);
}

#[test]
fn what_ends_while_it_runs_is_removed() {
    let node = Node::new();
    let mut control = start(
        &adopted_kept(node.open()),
        shop("gone", "10.96.0.1", &["10.0.0.1"]),
    );
    assert_eq!(clients_of(&node).len(), 1);
    let ended = [
        Event::SliceDeleted(name("t/gone")),
        Event::ServiceDeleted(name("t/gone")),
    ];
    applied(&mut control, ended);
    let contents = node.contents();
    assert_eq!((contents.frontends.len(), contents.backends.len()), (0, 0));
}
