//! The mutant gets no further address and reports none, and otherwise is the production agent.

use std::ffi::OsString;

use mutants::one_way::{OneWay, without_further_servers};
use reference_agent::{
    control::{DesiredState, Planner},
    maps::Contents,
    model::{Event, Slice},
    testing::{
        World,
        objects::{service, slice},
    },
};
use rstest::rstest;

/// The planner has got the API addresses at the start, as in the agent.
fn planner() -> Planner {
    let mut planner = Planner::default();
    let ways = [("10.96.0.1".parse().expect("an address"), 443)].into();
    planner.apply(Event::ApiServers(ways));
    planner
}

fn listing(endpoints: &[&str]) -> Slice {
    slice("default/kubernetes", "kubernetes", &["TCP 6443 https"], endpoints)
}

#[test]
fn what_serves_and_what_is_kept_for_its_own_sockets_is_the_production_agents() {
    fn emptied<B: DesiredState>(desired: B) -> Contents {
        let mut world = World::with(desired, &Contents::default());
        world.sync();
        world.put_service(service("default/kubernetes", "10.96.0.1", &["TCP 443 https"]));
        world.put_slice(listing(&["10.0.0.7"]));
        world.put_slice(listing(&[]));
        world.assert_clean();
        world.contents()
    }
    let mutated = emptied(OneWay(planner()));
    assert_eq!(mutated.kept.len(), 1);
    assert_eq!(mutated, emptied(planner()));
}

#[test]
fn nobody_learns_who_is_behind_a_service() {
    let mut mutant = OneWay(planner());
    let put = service("default/kubernetes", "10.96.0.1", &["TCP 443 https"]);
    mutant.apply(Event::ServiceApplied(put));
    mutant.apply(Event::SliceApplied(listing(&["10.0.0.7"])));
    let (id, _) = mutant.model().services().next().expect("the Service");
    assert_eq!(mutant.plan_service(id).ports.len(), 1);
    assert!(mutant.plan_api_access(id).ports.is_empty());
}

#[rstest]
#[case::joined(&["run", "--api-server=https://10.0.0.8:6443", "--node=n1"], &["run", "--node=n1"])]
#[case::apart(&["run", "--api-server", "https://10.0.0.8:6443", "--node=n1"], &["run", "--node=n1"])]
#[case::several(&["run", "--api-server=https://a", "--api-server=https://b"], &["run"])]
#[case::none(&["run", "--api-servers", "--state=/run"], &["run", "--api-servers", "--state=/run"])]
fn it_is_not_told_of_further_addresses_but_of_everything_else(
    #[case] line: &[&str],
    #[case] expected: &[&str],
) {
    assert_eq!(without_further_servers(line.iter().map(OsString::from)), expected);
}
