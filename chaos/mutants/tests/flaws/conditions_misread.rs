//! The mutants misread one combination of conditions each, and otherwise are the production agent.

use mutants::conditions_misread::{ConditionsMisread, Misread};
use reference_agent::{
    control::{DesiredState, Planner},
    maps::Contents,
    model::Slice,
    testing::{
        World,
        objects::{service, slice},
    },
};

/// `ready`, `serving` and `terminating`.
type Conditions = (bool, bool, bool);

const READY: Conditions = (true, true, false);
const UNREADY: Conditions = (false, false, false);
const DRAINING: Conditions = (false, true, true);
const STOPPED: Conditions = (false, false, true);

/// Endpoints in these conditions, the first at 1.1.1.1, and so on.
fn listed(conditions: &[Conditions]) -> Slice {
    let addresses = ["1.1.1.1", "1.1.1.2"];
    let mut slice = slice("t/1", "x", &["TCP 80"], &addresses[..conditions.len()]);
    for (endpoint, is) in slice.endpoints.iter_mut().zip(conditions) {
        (endpoint.ready, endpoint.serving, endpoint.terminating) = *is;
    }
    slice
}

/// Number of backends with these endpoints, after a start with others.
fn served_after(misread: Option<Misread>, before: &[Conditions], conditions: &[Conditions]) -> usize {
    let planner = Planner::default();
    match misread {
        Some(misread) => served(ConditionsMisread::new(planner, misread), before, conditions),
        None => served(planner, before, conditions),
    }
}

fn served<D: DesiredState>(desired: D, before: &[Conditions], conditions: &[Conditions]) -> usize {
    let mut world = World::with(desired, &Contents::default());
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80"]));
    world.put_slice(listed(before));
    world.sync();
    world.put_slice(listed(conditions));
    world.serves("TCP 10.96.0.1:80").expect("a frontend").len()
}

#[test]
fn each_misreads_its_own_combination() {
    let lists: [&[Conditions]; 6] = [
        &[READY, READY],
        &[READY, UNREADY],
        &[READY, DRAINING],
        &[READY, STOPPED],
        &[DRAINING, STOPPED],
        &[STOPPED, STOPPED],
    ];
    let all = |misread| lists.map(|conditions| served_after(misread, &[READY, READY], conditions));
    assert_eq!(all(None), [2, 1, 1, 1, 1, 0]);
    assert_eq!(all(Some(Misread::Unready)), [2, 2, 1, 1, 1, 0]);
    assert_eq!(all(Some(Misread::Draining)), [2, 1, 2, 1, 1, 0]);
    assert_eq!(all(Some(Misread::Terminating)), [2, 1, 1, 1, 0, 0]);
    assert_eq!(all(Some(Misread::Stopped)), [2, 1, 1, 1, 2, 2]);
    assert_eq!(all(Some(Misread::Returning)), [2, 1, 1, 1, 1, 0]);
}

#[test]
fn only_what_was_terminating_at_the_start_never_returns() {
    let returned = |misread, before| served_after(misread, before, &[READY, READY]);
    assert_eq!(returned(None, &[READY, DRAINING]), 2);
    assert_eq!(returned(Some(Misread::Returning), &[READY, DRAINING]), 1);
    assert_eq!(returned(Some(Misread::Returning), &[READY, UNREADY]), 2);
}
