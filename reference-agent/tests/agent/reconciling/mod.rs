//! What becomes of plans in the maps, rule by rule. Every write is witnessed: `assert_clean` says that no client and
//! no established flow could have told that something was written.

mod auditing;
mod clients;
mod keeping;
mod moving;
mod ranges;
mod serving;
mod sets;

use reference_agent::{
    control::{DesiredState as _, Planner},
    dump::{SECTIONS, dump},
    maps::Contents,
    model::{Event, Policy, Service, Slice, SourceRanges},
    plan::Perspective,
    testing::{
        World,
        objects::{service, slice},
    },
};

/// The name of the node under test.
const HERE: &str = "here";

/// An agent on the node `here`, whose API server is at 10.96.0.1:443.
fn planner() -> Planner {
    let mut planner = Planner::new(Perspective {
        node: HERE.to_owned(),
        ..Perspective::default()
    });
    let api_server = "10.96.0.1".parse().expect("an address");
    planner.apply(Event::ApiServers([(api_server, 443)].into()));
    planner
}

/// Over empty maps, synced.
fn world() -> World<Planner> {
    let mut world = World::with(planner(), &Contents::default());
    world.sync();
    world
}

/// A Service of type LoadBalancer with a node port.
fn balanced() -> Service {
    let mut service = service("t/x", "10.96.0.2", &["TCP 80"]);
    service.load_balancer_ips = vec!["198.51.100.7".parse().expect("an address")];
    for port in &mut service.ports {
        port.node_port = Some(30080);
    }
    service
}

/// The same, with clients outside served by this node's backends alone.
fn local() -> Service {
    Service {
        external_policy: Policy::Local,
        ..balanced()
    }
}

/// The same, for clients from these ranges.
fn ranged(ranges: &[&str]) -> Service {
    let ranges = ranges.iter().map(|text| range(text)).collect();
    Service {
        source_ranges: Some(SourceRanges {
            ranges,
            unreadable: false,
        }),
        ..balanced()
    }
}

/// `192.0.2.0/24`.
fn range(text: &str) -> reference_agent::endpoint_address::Range {
    let (address, length) = text.split_once('/').expect("address/length");
    let address = address.parse().expect("an address");
    reference_agent::endpoint_address::Range::new(address, length.parse().expect("a length"))
        .expect("a range")
}

/// The endpoints of `t/x`.
fn endpoints(endpoints: &[&str]) -> Slice {
    slice("t/1", "x", &["TCP 8080"], endpoints)
}

/// The lines of the dump below one of its headlines.
fn section(world: &World<Planner>, name: &str) -> Vec<String> {
    let text = dump(&world.contents());
    let lines = text.lines().skip_while(|line| *line != name).skip(1);
    lines
        .take_while(|line| !SECTIONS.contains(line))
        .map(str::to_owned)
        .collect()
}

/// Tells a restarted agent everything, and that it is everything: nothing may be written, and every number is the
/// same.
fn restart_unchanged(world: &World<Planner>, events: Vec<Event>) {
    let found = world.contents();
    let mut restarted = World::with(planner(), &found);
    for event in events {
        restarted.event(event);
    }
    restarted.sync();
    assert_eq!(restarted.contents(), found);
    assert_eq!(
        restarted.memory().writes(),
        0,
        "writes of an agent that found everything"
    );
    restarted.assert_lawful();
}

/// What a fresh agent would have written.
fn fresh(events: Vec<Event>) -> String {
    let mut world = world();
    for event in events {
        world.event(event);
    }
    dump(&world.contents())
}
