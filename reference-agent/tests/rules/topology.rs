//! Hints, and the safeguards of hints.

use reference_agent::{
    model::{Event, Model, Node, Policy},
    plan,
};
use rstest::rstest;

use super::support::{HERE, findings, frontend, here, marked, of_x, served, sets, x};

fn zone(name: &str, zone: Option<&str>) -> Event {
    Event::NodeApplied(Node {
        name: name.to_owned(),
        zone: zone.map(ToOwned::to_owned),
        ..Node::default()
    })
}

fn seen(model: &mut Model, event: Event) -> Vec<String> {
    let dirty = plan::apply(model, &here(), event);
    marked(model, &dirty)
}

#[rstest]
#[case::those_for_this_zone(&["1.1.1.1 zones:a", "1.1.1.2 zones:b", "1.1.1.3 zones:b,a"], "1.1.1.1:8080 1.1.1.3:8080")]
#[case::one_without_hints_ends_them_for_all(&["1.1.1.1 zones:a", "1.1.1.2 zones:b", "1.1.1.3"], "1.1.1.1:8080 1.1.1.2:8080 1.1.1.3:8080")]
#[case::none_for_this_zone_is_all(&["1.1.1.1 zones:b", "1.1.1.2 zones:c"], "1.1.1.1:8080 1.1.1.2:8080")]
#[case::what_is_not_ready_is_not_asked(&["1.1.1.1 zones:a", "!1.1.1.2", "1.1.1.3 zones:b"], "1.1.1.1:8080")]
#[case::what_is_on_its_way_out_is_not_asked(&["1.1.1.1 zones:a", "~1.1.1.2", "1.1.1.3 zones:b"], "1.1.1.1:8080")]
#[case::hints_of_what_is_not_ready_do_not_count(&["1.1.1.1 zones:b", "!1.1.1.1 zones:a", "1.1.1.2 zones:b"], "1.1.1.1:8080 1.1.1.2:8080")]
#[case::an_address_has_the_hints_of_all_its_entries(&["1.1.1.1 zones:b", "1.1.1.1 zones:a", "1.1.1.2 zones:b"], "1.1.1.1:8080")]
#[case::an_address_has_hints_if_one_of_its_entries_has(&["1.1.1.1", "1.1.1.1 zones:a", "1.1.1.2 zones:b"], "1.1.1.1:8080")]
#[case::those_for_this_node(&["1.1.1.1 nodes:here", "1.1.1.2 nodes:there", "1.1.1.3 nodes:there,here"], "1.1.1.1:8080 1.1.1.3:8080")]
#[case::nodes_go_before_zones(&["1.1.1.1 nodes:here zones:b", "1.1.1.2 nodes:there zones:a"], "1.1.1.1:8080")]
#[case::one_without_hints_for_nodes_leaves_it_to_zones(&["1.1.1.1 nodes:here zones:b", "1.1.1.2 zones:a"], "1.1.1.2:8080")]
#[case::none_for_this_node_leaves_it_to_zones(&["1.1.1.1 nodes:there zones:b", "1.1.1.2 nodes:there zones:a"], "1.1.1.2:8080")]
#[case::a_zone_of_a_longer_name_is_another(&["1.1.1.1 zones:a", "1.1.1.2 zones:aa"], "1.1.1.1:8080")]
#[case::whoever_is_on_their_way_out_has_no_hints(&["~1.1.1.1 zones:a", "~1.1.1.2 zones:b"], "1.1.1.1:8080 1.1.1.2:8080")]
fn hints_in_zone_a(#[case] endpoints: &[&str], #[case] expected: &str) {
    let mut model = served(x(|_| ()), [of_x("1", endpoints)]);
    seen(&mut model, zone(HERE, Some("a")));
    assert_eq!(frontend(&model, "TCP 10.96.0.1:80").as_deref(), Some(expected));
    assert_eq!(findings(&model, "t/x"), [""; 0]);
}

#[test]
fn established_flows_keep_to_backends_of_other_zones() {
    let mut model = served(x(|_| ()), [of_x("1", &["1.1.1.1 zones:a", "1.1.1.2 zones:b"])]);
    seen(&mut model, zone(HERE, Some("a")));
    assert_eq!(sets(&model), "1.1.1.1:8080 | refused | 1.1.1.1:8080 1.1.1.2:8080");
}

#[test]
fn a_policy_local_overrides_hints() {
    let object = x(|service| service.internal_policy = Policy::Local);
    let mut model = served(
        object,
        [of_x("1", &["1.1.1.1 zones:a", "1.1.1.2 on:here zones:b"])],
    );
    seen(&mut model, zone(HERE, Some("a")));
    assert_eq!(
        frontend(&model, "TCP 10.96.0.1:80").as_deref(),
        Some("1.1.1.2:8080@")
    );
}

#[test]
fn without_a_zone_of_this_node_hints_for_zones_do_not_count_and_it_may_get_one_and_lose_it() {
    let both = "1.1.1.1:8080 1.1.1.2:8080";
    let mut model = served(x(|_| ()), [of_x("1", &["1.1.1.1 zones:a", "1.1.1.2 zones:b"])]);
    let zoned = served_again(&mut model);
    assert_eq!(zoned(&model).as_deref(), Some(both), "its Node is not known");
    assert_eq!(seen(&mut model, zone(HERE, None)), [""; 0]);
    assert_eq!(zoned(&model).as_deref(), Some(both), "its Node says no zone");
    assert_eq!(seen(&mut model, zone(HERE, Some("b"))), ["t/x"]);
    assert_eq!(zoned(&model).as_deref(), Some("1.1.1.2:8080"));
    assert_eq!(seen(&mut model, zone(HERE, Some("b"))), [""; 0]);
    assert_eq!(
        seen(&mut model, zone("there", Some("a"))),
        [""; 0],
        "another Node's zone is nothing to us"
    );
    assert_eq!(seen(&mut model, Event::NodeDeleted("there".to_owned())), [""; 0]);
    assert_eq!(seen(&mut model, Event::NodeDeleted(HERE.to_owned())), ["t/x"]);
    assert_eq!(zoned(&model).as_deref(), Some(both));
}

/// A Service without hints beside it, which no zone concerns.
fn served_again(model: &mut Model) -> impl Fn(&Model) -> Option<String> + use<> {
    let other = reference_agent::testing::objects::service("t/y", "10.96.0.2", &["TCP 80"]);
    model.apply(Event::ServiceApplied(other));
    let plain = reference_agent::testing::objects::slice("t/y", "y", &["TCP 80"], &["1.1.1.9"]);
    model.apply(Event::SliceApplied(plain));
    |model| frontend(model, "TCP 10.96.0.1:80")
}
