//! Who is of the cluster.

use std::collections::BTreeSet;

use reference_agent::{
    endpoint_address::Range,
    model::{Event, Host, Model, Node},
    names::ObjectId,
    plan,
};

use super::support::{here, ips, marked, model, ranges, served, x};

fn node(name: &str, zone: &str, addresses: &str, pods: &str) -> Event {
    Event::NodeApplied(Node {
        name: name.to_owned(),
        zone: Some(zone.to_owned()),
        addresses: ips(addresses),
        internal: ips(addresses),
        pods: ranges(pods),
    })
}

fn clients(model: &Model) -> BTreeSet<Range> {
    plan::clients(&plan::plan(model, &here()))
}

#[test]
fn addresses_of_all_nodes_and_networks_of_their_pods_are_the_clusters() {
    let model = model([
        node("here", "a", "10.0.0.1 fd00::1", "10.244.1.0/24 fd00:244:1::/64"),
        node("there", "b", "10.0.0.2 192.0.2.2", ""),
    ]);
    let expected = ranges("10.0.0.1/32 10.0.0.2/32 192.0.2.2/32 10.244.1.0/24 fd00::1/128 fd00:244:1::/64");
    assert_eq!(clients(&model), expected.into_iter().collect());
    let node = plan::plan_service(&model, &here(), ObjectId::NODE);
    assert_eq!(node.clients.len(), 6, "the node's own plan has them");
}

#[test]
fn the_node_is_marked_where_a_node_has_other_clients_and_not_for_its_heartbeat() {
    let mut model = served(x(|_| ()), []);
    let mut step = |event, expected: &[&str], count: usize| {
        let dirty = model.apply(event);
        assert_eq!(marked(&model, &dirty), expected);
        assert_eq!(clients(&model).len(), count);
    };
    step(node("a", "z", "10.0.0.1", "10.244.1.0/24"), &["node"], 2);
    step(node("a", "z", "10.0.0.1", "10.244.1.0/24"), &[], 2);
    step(node("a", "y", "10.0.0.1", "10.244.1.0/24"), &[], 2);
    step(node("b", "z", "10.0.0.1", ""), &["node"], 2);
    step(node("a", "z", "", "10.244.1.0/24"), &["node"], 2);
    step(Event::NodeDeleted("a".to_owned()), &["node"], 1);
    step(Event::NodeDeleted("b".to_owned()), &["node"], 0);
    step(Event::NodeDeleted("b".to_owned()), &[], 0);
}

#[test]
fn this_host_alone_says_nothing_of_the_cluster_and_mapped_addresses_do_not_either() {
    let host = Event::Host(Host {
        addresses: ips("10.0.0.1").into_iter().collect(),
        probe: None,
    });
    let model = model([host, node("a", "z", "::ffff:10.0.0.2", "")]);
    assert_eq!(clients(&model), BTreeSet::new());
}
