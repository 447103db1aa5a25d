//! Schedules in simulated time: the law holds for the production agent's parts, and is broken by those with a bug.

use std::{collections::BTreeSet, time::Duration};

use mutants::Mutant;
use reference_agent::{control::Planner, plan::Perspective};
use rstest::rstest;
use scenarios::chaos::{
    generate::{Wish, schedule},
    schedule::{Action, Condition, Does, Endpoint, Fault, FaultKind, Schedule, Slice, SliceWrite},
};
use simulation::{Desired, Played, played, shortest, simulated};

fn wish() -> Wish {
    Wish {
        lasts_ms: 60_000,
        kinds: FaultKind::ALL
            .into_iter()
            .filter(|kind| simulated(*kind))
            .collect(),
        nodes: 1,
        moves: true,
    }
}

fn production(perspective: Perspective) -> Desired {
    Box::new(Planner::new(perspective))
}

fn of_seed(seed: u64) -> Played {
    played(&schedule(seed, &wish()), &production).expect("it can be played")
}

#[test]
fn the_law_holds_and_every_fault_has_been_there() {
    let mut kinds = BTreeSet::new();
    for seed in 1..25 {
        let played = of_seed(seed);
        assert_eq!(played.broken, None, "seed {seed}");
        assert!(
            played.told > 0 && played.quiet > 0 && played.calls > 20,
            "seed {seed}: {played:?}"
        );
        kinds.extend(played.faults.into_keys());
    }
    assert_eq!(kinds, wish().kinds, "sometimes each of them happens");
}

#[test]
fn a_schedule_goes_as_it_went() {
    let counts = |played: Played| (played.calls, played.told, played.quiet, played.faults);
    assert_eq!(counts(of_seed(3)), counts(of_seed(3)));
}

#[rstest]
#[case::incident_1(Mutant::PrefixRelease, 4)]
#[case::cilium_1_18_5(Mutant::PrefixReleaseSlicesByName, 4)]
#[case::a_refill_is_ignored(Mutant::RefillIgnored, 4)]
#[case::the_last_slice_wins(Mutant::LastSliceWins, 4)]
#[case::unready_endpoints(Mutant::UnreadyServed, 2)]
fn a_bug_is_found_within_twenty_seeds_and_shrinks(#[case] mutant: Mutant, #[case] most: usize) {
    let plans = mutant.plans().unwrap();
    let bug = move |perspective| plans(Planner::new(perspective));
    let found = (1..21)
        .map(|seed| schedule(seed, &wish()))
        .find(|schedule| played(schedule, &bug).unwrap().broken.is_some())
        .expect("one of twenty seeds shows it");
    let shortest = shortest(&found, 200, &bug);
    let actions = &shortest.actions;
    assert!((1..=most).contains(&actions.len()), "{actions:#?}");
    assert!(played(&shortest, &bug).unwrap().broken.is_some());
    assert_eq!(played(&shortest, &production).unwrap().broken, None);
}

/// What no fault explains is seen in the moment after it, not at the end.
#[test]
fn what_is_broken_is_seen_at_once() {
    let endpoint = Endpoint {
        backend: 3,
        condition: Condition::Unready,
    };
    let to = Slice {
        of: 0,
        endpoints: Some(vec![endpoint]),
    };
    let write = |at_ms, slice, to| Action {
        at_ms,
        does: Does::Slice(SliceWrite { slice, to }),
    };
    let actions = vec![
        write(1000, 0, Some(to.clone())),
        write(1000, 1, Some(to)),
        Action {
            at_ms: 2000,
            does: Does::Annotate(0),
        },
        Action {
            at_ms: 30_000,
            does: Does::Fault(Fault {
                kind: FaultKind::AgentKilled,
                node: None,
                lasts_ms: 0,
            }),
        },
    ];
    let schedule = Schedule {
        seed: 1,
        lasts_ms: 60_000,
        actions,
    };
    let plans = Mutant::UnreadyServed.plans().unwrap();
    let broken = played(&schedule, &|perspective| plans(Planner::new(perspective)))
        .unwrap()
        .broken
        .unwrap();
    assert!(broken.at < Duration::from_secs(3), "{broken:?}");
}
