//! The mutant keeps no backends for its own sockets, reports no API addresses, and otherwise is the production agent.

use mutants::locked_out::LockedOut;
use reference_agent::{
    control::{DesiredState, Planner},
    maps::Contents,
    model::Event,
    testing::{
        World,
        objects::{service, slice},
    },
};

/// The planner has got the API addresses at the start, as in the agent.
fn planner() -> Planner {
    let mut planner = Planner::default();
    planner.apply(ways());
    planner
}

fn ways() -> Event {
    Event::ApiServers([("10.96.0.1".parse().expect("an address"), 443)].into())
}

fn emptied<B: DesiredState>(desired: B) -> World<B> {
    let mut world = World::with(desired, &Contents::default());
    world.sync();
    world.put_service(service("default/kubernetes", "10.96.0.1", &["TCP 443 https"]));
    let listing =
        |endpoints: &[&str]| slice("default/kubernetes", "kubernetes", &["TCP 6443 https"], endpoints);
    world.put_slice(listing(&["10.0.0.7"]));
    assert_eq!(world.serves("TCP 10.96.0.1:443").expect("a frontend").len(), 1);
    world.put_slice(listing(&[]));
    assert_eq!(world.serves("TCP 10.96.0.1:443").expect("a frontend").len(), 0);
    world.assert_clean();
    world
}

#[test]
fn nothing_is_kept_for_the_agent_where_the_production_agent_keeps_it() {
    assert_eq!(emptied(planner()).contents().kept.len(), 1);
    assert_eq!(emptied(LockedOut::new(planner())).contents().kept.len(), 0);
}

#[test]
fn it_is_not_told_later_either_and_nobody_learns_who_is_behind_a_service() {
    let mut mutant = LockedOut::new(planner());
    assert!(mutant.apply(ways()).is_empty());
    let put = service("default/kubernetes", "10.96.0.1", &["TCP 443 https"]);
    mutant.apply(Event::ServiceApplied(put));
    mutant.apply(Event::SliceApplied(slice(
        "default/kubernetes",
        "kubernetes",
        &["TCP 6443 https"],
        &["10.0.0.7"],
    )));
    let (id, _) = mutant.model().services().next().expect("the Service");
    assert_eq!(mutant.plan_service(id).ports.len(), 1);
    assert!(mutant.plan_api_access(id).ports.is_empty());
}
