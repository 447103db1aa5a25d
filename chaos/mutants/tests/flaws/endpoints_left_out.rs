//! The mutant leaves out the endpoints that its rule is about, and no others.

use mutants::endpoints_left_out::{EndpointsLeftOut, LeftOut};
use reference_agent::{
    control::{DesiredState, Planner},
    maps::Contents,
    model::{Event, Host},
    plan::Perspective,
    testing::{
        World,
        objects::{service, slice},
    },
};

/// How many backends the Service has by TCP and UDP, with these endpoints.
fn served(left_out: Option<LeftOut>, endpoints: &[&str]) -> [usize; 2] {
    fn of(desired: impl DesiredState, endpoints: &[&str]) -> [usize; 2] {
        let mut world = World::with(desired, &Contents::default());
        world.sync();
        let ports = ["TCP 80 t", "UDP 80 u"];
        world.put_slice(slice("t/1", "x", &ports, endpoints));
        world.put_service(service("t/x", "10.96.0.1", &ports));
        // The node's addresses are known later.
        world.event(Event::Host(Host {
            addresses: ["192.0.2.9".parse().expect("an address")].into(),
            probe: None,
        }));
        world.assert_clean();
        ["TCP 10.96.0.1:80", "UDP 10.96.0.1:80"]
            .map(|frontend| world.serves(frontend).map_or(0, |by| by.len()))
    }
    let planner = Planner::new(Perspective {
        node: "here".to_owned(),
        ..Perspective::default()
    });
    match left_out {
        Some(left_out) => of(EndpointsLeftOut::new(planner, left_out), endpoints),
        None => of(planner, endpoints),
    }
}

/// Endpoints, how many of them are right, and how many each rule leaves.
type Row = (&'static [&'static str], [usize; 2], [[usize; 2]; 3]);

#[test]
fn each_rule_leaves_out_its_own_endpoints() {
    let rows: [Row; 4] = [
        (&["192.0.2.9@here"], [1, 1], [[0, 0], [1, 0], [1, 1]]),
        (&["192.0.2.8@there"], [1, 1], [[1, 1], [1, 1], [1, 1]]),
        (
            &["1.1.1.1@here", "1.1.1.2@here"],
            [2, 2],
            [[2, 2], [2, 2], [2, 2]],
        ),
        (&["1.1.1.1@there", "1.1.1.2"], [2, 2], [[2, 2], [2, 2], [1, 1]]),
    ];
    let rules = [LeftOut::OfThisNode, LeftOut::AloneByUdp, LeftOut::WithoutNode];
    for (endpoints, right, left) in rows {
        assert_eq!(served(None, endpoints), right, "{endpoints:?}");
        for (rule, left) in rules.into_iter().zip(left) {
            assert_eq!(served(Some(rule), endpoints), left, "{rule:?} of {endpoints:?}");
        }
    }
}
