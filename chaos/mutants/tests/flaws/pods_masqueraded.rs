//! The mutant masquerades the pods of all Nodes, and plans as the production agent.

use std::{collections::BTreeSet, sync::mpsc};

use mutants::pods_masqueraded::PodsMasqueraded;
use reference_agent::{
    control::{DesiredState, Planner},
    endpoint_address::Range,
    model::{Event, Node},
};

#[test]
fn pods_of_every_node_are_masqueraded_once_they_are_known() {
    let (sender, masqueraded) = mpsc::channel();
    let mut desired = PodsMasqueraded::new(Planner::default(), move |pods: &BTreeSet<Range>| {
        sender.send(pods.len()).expect("the test goes on");
    });
    for (name, range) in [("n1", "10.244.1.0"), ("n2", "10.244.2.0"), ("n1", "10.244.1.0")] {
        let range = Range::new(range.parse().expect("an address"), 24).expect("a range");
        desired.apply(Event::NodeApplied(Node {
            name: name.to_owned(),
            pods: vec![range],
            ..Node::default()
        }));
    }
    assert_eq!(masqueraded.try_iter().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(desired.model().nodes().count(), 2);
}
