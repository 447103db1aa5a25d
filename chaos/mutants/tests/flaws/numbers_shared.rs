//! A Service that is new to a start that has found others is served by the backends of one of these.

use std::time::Instant;

use mutants::numbers_shared::numbers_shared;
use reference_agent::{
    control::{Control, Planner},
    datapath::Datapath,
    model::Event,
    resolve,
    testing::{
        Served,
        node::Node,
        objects::{address, service, slice},
        served, synced,
    },
};

fn start<D: Datapath>(datapath: &D, shops: &[(&str, &str, &str)]) {
    let mut control = Control::new(Planner::default(), datapath.maps()).expect("maps in memory can be read");
    for (name, vip, endpoint) in shops {
        control.apply(Event::ServiceApplied(service(
            &format!("t/{name}"),
            vip,
            &["TCP 80"],
        )));
        control.apply(Event::SliceApplied(slice(
            &format!("t/{name}"),
            name,
            &["TCP 8080"],
            &[*endpoint],
        )));
    }
    for event in synced() {
        control.apply(event);
    }
    control.reconcile(Instant::now());
}

fn clients_of(node: &Node) -> Served {
    served(&resolve::resolve(&node.contents()).0)
}

#[test]
fn what_the_first_start_writes_is_right_and_what_the_next_one_adds_is_anothers() {
    let old = ("old", "10.96.0.2", "10.0.0.2");
    let new = ("new", "10.96.0.1", "10.0.0.1");
    let [at_old, at_new] = ["TCP 10.96.0.2:80", "TCP 10.96.0.1:80"].map(address);
    let [by_old, by_new] = ["TCP 10.0.0.2:8080", "TCP 10.0.0.1:8080"].map(address);

    let node = Node::new();
    start(&numbers_shared(node.open()), &[old]);
    assert_eq!(clients_of(&node)[&at_old], [by_old].into());
    start(&numbers_shared(node.open()), &[new, old]);
    assert_eq!(clients_of(&node)[&at_new], [by_old].into());
    assert_eq!(clients_of(&node)[&at_old], [by_old].into());

    let node = Node::new();
    start(&node.open(), &[old]);
    start(&node.open(), &[new, old]);
    assert_eq!(clients_of(&node)[&at_new], [by_new].into());
}
