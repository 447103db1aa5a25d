//! Each mutant misreads hints in one situation, and is the production agent in all others.

use mutants::hints_misread::{HintsMisread, Misread};
use reference_agent::{
    control::{DesiredState, Planner},
    model::{Event, Node, Slice},
    plan::Perspective,
    testing::objects::{service, slice},
};
use rstest::rstest;

fn planner() -> Planner {
    Planner::new(Perspective {
        node: "here".to_owned(),
        ..Perspective::default()
    })
}

/// A slice with these endpoints, each with the zone of its hint.
fn hinted(endpoints: &[(&str, &str)]) -> Slice {
    let addresses: Vec<&str> = endpoints.iter().map(|(address, _)| *address).collect();
    let mut slice = slice("t/1", "x", &["TCP 80"], &addresses);
    for (endpoint, (_, zone)) in slice.endpoints.iter_mut().zip(endpoints) {
        endpoint.for_zones = [*zone].into_iter().filter(|zone| !zone.is_empty()).collect();
    }
    slice
}

/// The last numbers of the addresses that serve a node in zone `a`.
fn serving(mut desired: impl DesiredState, endpoints: &[(&str, &str)]) -> String {
    desired.apply(Event::NodeApplied(Node {
        name: "here".to_owned(),
        zone: Some("a".to_owned()),
        ..Node::default()
    }));
    let ids = desired.apply(Event::ServiceApplied(service("t/x", "10.96.0.1", &["TCP 80"])));
    desired.apply(Event::SliceApplied(hinted(endpoints)));
    let plan = desired.plan_service(*ids.last().expect("the Service"));
    let port = plan.ports.values().next().expect("a port");
    let last = |address: std::net::IpAddr| address.to_string().chars().last();
    port.cluster
        .iter()
        .filter_map(|backend| last(backend.address.address))
        .collect()
}

const COMPLETE: [(&str, &str); 2] = [("1.1.1.1", "a"), ("1.1.1.2", "b")];
const PARTIAL: [(&str, &str); 2] = [("1.1.1.1", "a"), ("1.1.1.2", "")];
const UNREADY: [(&str, &str); 2] = [("!1.1.1.1", "a"), ("1.1.1.2", "b")];
const NONE: [(&str, &str); 2] = [("1.1.1.1", ""), ("1.1.1.2", "")];

#[rstest]
#[case(Misread::Ignored, ["12", "12", "2", "12"])]
#[case(Misread::PartialCounted, ["1", "1", "2", "12"])]
#[case(Misread::UnreadyCounted, ["1", "12", "", "12"])]
fn a_zone_is_served(#[case] misread: Misread, #[case] wrong: [&str; 4]) {
    let rows = [COMPLETE, PARTIAL, UNREADY, NONE];
    let right = ["1", "12", "2", "12"];
    assert_eq!(rows.map(|endpoints| serving(planner(), &endpoints)), right);
    let mutant = || HintsMisread::new(planner(), misread);
    assert_eq!(rows.map(|endpoints| serving(mutant(), &endpoints)), wrong);
}
